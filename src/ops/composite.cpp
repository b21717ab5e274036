// Operators made of others, without a kernel of their own.
#include <algorithm>

#include "src/core/storage.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// column - row of every place of x's matrices.
Tensor diagonals(const Tensor& x, std::string_view where) {
  if (x.rank() < 2) fail(where, "got the shape ", x.shape(), ", need at least 2 axes (matrices)");
  return (arange(x.shape(-1)) - arange(x.shape(-2)).expand_dims(1)).to(x.device());
}

// The type in which a and b are compared up to rounding: no narrower than f32, so that the
// tolerances are not lost.
DType tolerant_type(const Tensor& a, const Tensor& b) {
  const Tensor both[] = {a, b};
  const DType common = result_type(both, "isclose");
  return common == f16 || common == bf16 ? f32 : is_floating(common) ? common : f64;
}

}  // namespace

Tensor isclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  broadcast_shapes(a.shape(), b.shape(), "isclose");
  const DType dtype = tolerant_type(a, b);
  const Tensor x = cast(a, dtype), y = cast(b, dtype);
  const Tensor close = ((abs(x - y) <= atol + rtol * abs(y)) & isfinite(y)) | (x == y);
  return equal_nan ? close | (isnan(x) & isnan(y)) : close;
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  for (const Tensor& x : {a, b}) detail::require_values(x, "allclose", "use all(isclose(a, b))");
  return all(isclose(a, b, rtol, atol, equal_nan)).item<bool>();
}

bool array_equal(const Tensor& a, const Tensor& b, bool equal_nan) {
  if (!(a.shape() == b.shape())) return false;
  for (const Tensor& x : {a, b}) detail::require_values(x, "array_equal", "use all(a == b)");
  const Tensor same = a == b;
  return all(equal_nan ? same | ((a != a) & (b != b)) : same).item<bool>();
}

Tensor full(const Shape& shape, const Tensor& value) { return full(shape, value, value.dtype()); }
Tensor full(const Shape& shape, const Tensor& value, DType dtype) {
  check_fits(value, dtype, "full", "name a wider type");
  return copy(broadcast_to(cast(value, dtype), shape));
}

Tensor ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor empty_like(const Tensor& x, std::optional<DType> dtype) {
  return empty(x.shape(), dtype.value_or(x.dtype()), x.device());
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  return zeros(x.shape(), dtype.value_or(x.dtype())).to(x.device());
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  return ones(x.shape(), dtype.value_or(x.dtype())).to(x.device());
}
Tensor full_like(const Tensor& x, const Tensor& value, std::optional<DType> dtype) {
  return full(x.shape(), value, dtype.value_or(x.dtype())).to(x.device());
}

Tensor stack(const std::vector<Tensor>& parts, int axis) {
  if (parts.empty()) fail("stack", "got no tensors, need at least one");
  const int at = normalize_axis(axis, parts[0].rank() + 1, "stack");
  std::vector<Tensor> expanded;
  for (const Tensor& part : parts) {
    if (!(part.shape() == parts[0].shape()))
      fail("stack", "got the shapes ", parts[0].shape(), " and ", part.shape(),
           ", need equal ones");
    expanded.push_back(expand_dims(part, at));
  }
  return concatenate(expanded, at);
}

Tensor detail::stack_equal(const std::vector<Tensor>& rows) {
  if (rows.empty()) fail("array", "got no rows: use empty(shape) for a tensor without elements");
  for (const Tensor& row : rows)
    if (!(row.shape() == rows.front().shape()))
      fail("array", "got rows of the shapes ", rows.front().shape(), " and ", row.shape(),
           ", need equal ones");
  return stack(rows);
}

Tensor tile(const Tensor& x, const Dims& reps) {
  // A new axis in front of every axis that is repeated, stretched and merged with it.
  const int rank = std::max(x.rank(), reps.rank());
  Shape split, stretched, result;
  for (int axis = 0; axis < rank; ++axis) {
    const int in_x = axis - (rank - x.rank()), in_reps = axis - (rank - reps.rank());
    const std::int64_t extent = in_x < 0 ? 1 : x.shape(in_x);
    const std::int64_t count = in_reps < 0 ? 1 : reps[in_reps];
    if (count < 0) fail("tile", "got the repetitions ", reps, ", need at least 0");
    if (count != 1) {
      split.push_back(1);
      stretched.push_back(count);
    }
    split.push_back(extent);
    stretched.push_back(extent);
    result.push_back(num_elements({extent, count}));
  }
  return reshape(copy(broadcast_to(reshape(x, split), stretched)), result);
}

Tensor repeat(const Tensor& x, std::int64_t repeats, int axis) {
  const int at = normalize_axis(axis, x.rank(), "repeat");
  if (repeats < 0) fail("repeat", "got ", repeats, " repeats, need at least 0");
  Shape stretched = x.shape(), result = x.shape();
  stretched.insert(at + 1, repeats);
  result[at] = num_elements({x.shape(at), repeats});
  return reshape(copy(broadcast_to(expand_dims(x, at + 1), stretched)), result);
}

Tensor tril(const Tensor& x, std::int64_t k) {
  return where(diagonals(x, "tril") <= k, x, zeros({}, x.dtype()));
}

Tensor triu(const Tensor& x, std::int64_t k) {
  return where(diagonals(x, "triu") >= k, x, zeros({}, x.dtype()));
}

}  // namespace tensor

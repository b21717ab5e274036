// Operators made of others, without a kernel of their own: full, stack, tile, repeat, tril, triu.
#include <algorithm>

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

}  // namespace

Tensor full(const Shape& shape, const Tensor& value) { return full(shape, value, value.dtype()); }
Tensor full(const Shape& shape, const Tensor& value, DType dtype) {
  check_fits(value, dtype, "full", "name a wider type");
  return copy(broadcast_to(cast(value, dtype), shape));
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

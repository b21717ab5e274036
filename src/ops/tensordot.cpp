// Compositions of products: outer, tensordot and cross.
#include "src/core/storage.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The axes that are not in `axes`, in their order.
Dims others(const Dims& axes, int rank) {
  Dims result;
  for (int axis = 0; axis < rank; ++axis)
    if (!axes.contains(axis)) result.push_back(axis);
  return result;
}

Shape extents(const Tensor& x, const Dims& axes) {
  Shape shape;
  for (const std::int64_t axis : axes) shape.push_back(x.shape(static_cast<int>(axis)));
  return shape;
}

}  // namespace

Tensor outer(const Tensor& a, const Tensor& b) {
  return reshape(a, {a.size(), 1}) * reshape(b, {1, b.size()});
}

Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& axes_of_a, const Dims& axes_of_b) {
  const Dims of_a = distinct_axes(axes_of_a, a.rank(), "tensordot"),
             of_b = distinct_axes(axes_of_b, b.rank(), "tensordot");
  const Shape summed = extents(a, of_a);
  if (!(summed == extents(b, of_b)))
    fail("tensordot", "got the axes ", axes_of_a, " of the shape ", a.shape(), " and ", axes_of_b,
         " of ", b.shape(), ", need equal extents");
  const Dims rows = others(of_a, a.rank()), columns = others(of_b, b.rank());
  const Shape row_shape = extents(a, rows), column_shape = extents(b, columns);
  const std::int64_t depth = num_elements(summed);
  const Tensor left = reshape(transpose(a, joined(rows, of_a)), {num_elements(row_shape), depth});
  const Tensor right =
      reshape(transpose(b, joined(of_b, columns)), {depth, num_elements(column_shape)});
  return reshape(matmul(left, right), joined(row_shape, column_shape));
}

Tensor tensordot(const Tensor& a, const Tensor& b, int axes) {
  if (axes < 0 || axes > a.rank() || axes > b.rank())
    fail("tensordot", "got ", axes, " axes of the shapes ", a.shape(), " and ", b.shape(),
         ", need at most as many as both have");
  Dims last, first;
  for (int i = 0; i < axes; ++i) last.push_back(a.rank() - axes + i), first.push_back(i);
  return tensordot(a, b, last, first);
}

Tensor cross(const Tensor& a, const Tensor& b, int axis) {
  const int in_a = normalize_axis(axis, a.rank(), "cross"),
            in_b = normalize_axis(axis, b.rank(), "cross");
  if (a.shape(in_a) != 3 || b.shape(in_b) != 3)
    fail("cross", "got the shapes ", a.shape(), " and ", b.shape(), ", need 3 elements along axis ",
         axis);
  const auto part = [](const Tensor& x, int at, std::int64_t i) {
    return squeeze(slice_axis(x, at, i, 1), at);
  };
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts.push_back(part(a, in_a, j) * part(b, in_b, k) - part(a, in_a, k) * part(b, in_b, j));
  }
  return stack(parts, axis);
}

}  // namespace tensor

#include "tests/generated/reference.h"

#include <algorithm>

namespace tensor::generated {

const References& references() {
  static const References table = [] {
    References all;
    add_pointwise_references(all);
    add_reduce_references(all);
    add_product_references(all);
    add_neural_references(all);
    add_image_references(all);
    add_shape_references(all);
    return all;
  }();
  return table;
}

Shape common_shape(const Arrays& arrays) {
  int rank = 0;
  for (const Array& array : arrays) rank = std::max(rank, array.rank());
  Shape shape = Shape::filled(rank, 1);
  for (const Array& array : arrays)
    for (int axis = 0; axis < array.rank(); ++axis)
      if (array.shape[axis] != 1) shape[axis + rank - array.rank()] = array.shape[axis];
  return shape;
}

DType common_type(const Arrays& arrays) {
  DType dtype = arrays[0].dtype;
  for (const Array& array : arrays)
    dtype = promote(dtype, array.dtype);  // itself tested against NumPy's table
  return dtype;
}

Array as_type(const Array& array, DType dtype) {
  Array result = array;
  result.dtype = dtype;
  for (Exact& value : result.values) value = round_to(dtype, value);
  return result;
}

std::vector<int> axes_of(const Attrs& attrs, int rank, std::string_view name) {
  std::vector<int> axes;
  if (!attrs.has(name))
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  else
    for (const auto axis : attrs.ints(name))
      axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  std::sort(axes.begin(), axes.end());
  return axes;
}

int axis_of(const Attrs& attrs, int rank, int fallback) {
  const auto axis = static_cast<int>(attrs.integer("axis", fallback));
  return axis < 0 ? axis + rank : axis;
}

}  // namespace tensor::generated

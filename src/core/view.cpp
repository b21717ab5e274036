#include "src/core/view.h"

#include <algorithm>
#include <cstdlib>

namespace tensor {

bool is_contiguous(const Shape& shape, const Strides& strides) {
  std::int64_t expected = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 0) return true;
    if (shape[axis] != 1 && strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

ConstView const_view(const Tensor& x) {
  const detail::TensorImpl& impl = detail::stored(x);
  return {impl.first(), impl.type.dtype, impl.type.shape, impl.strides};
}

View mutable_view(const Tensor& x) {
  const detail::TensorImpl& impl = detail::stored(x);
  return {impl.first(), impl.type.dtype, impl.type.shape, impl.strides};
}

template <class Byte>
bool BasicView<Byte>::is_contiguous() const {
  return tensor::is_contiguous(shape, strides);
}
template struct BasicView<std::byte>;
template struct BasicView<const std::byte>;

Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& shape) {
  Strides result = Strides::filled(shape.rank(), 0);
  const int lead = shape.rank() - from.rank();
  for (int axis = 0; axis < from.rank(); ++axis)
    if (from[axis] != 1 || shape[axis + lead] == 1) result[axis + lead] = strides[axis];
  return result;
}

Dims memory_order(const Strides& strides) {
  Dims order;
  for (int axis = 0; axis < strides.rank(); ++axis) order.push_back(axis);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(strides[static_cast<int>(a)]) > std::abs(strides[static_cast<int>(b)]);
  });
  return order;
}

}  // namespace tensor

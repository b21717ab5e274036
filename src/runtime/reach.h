// How far the elements of a strided tensor lie apart.
#pragma once

#include <utility>

#include "tensor/handle.h"

namespace tensor::detail {

/// All bytes from the lowest to the highest element, counted from the first one, which is not the
/// lowest where strides are negative.
struct Reach {
  std::int64_t first = 0, bytes = 0;
};

inline Reach reach_of(const Shape& shape, const Strides& strides, DType dtype) {
  if (num_elements(shape) == 0) return {};
  std::int64_t first = 0, last = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t span = (shape[axis] - 1) * strides[axis];
    (span < 0 ? first : last) += span;
  }
  return {first * item_size(dtype), (last - first + 1) * item_size(dtype)};
}

}  // namespace tensor::detail

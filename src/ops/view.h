// Slices along given axes, as the other operators and indexing use them.
#pragma once

#include "tensor/handle.h"

namespace tensor {

/// x[start : : step] with `extent` elements, on every axis; the elements must exist.
Tensor slice_axes(const Tensor& x, const Dims& start, const Dims& extent, const Dims& step);

/// The same on one axis (not negative).
Tensor slice_axis(const Tensor& x, int axis, std::int64_t start, std::int64_t extent,
                  std::int64_t step = 1);

}  // namespace tensor

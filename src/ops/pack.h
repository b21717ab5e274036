// Copies between views of different layouts and element types, for kernels that want their operands
// in a row.
#pragma once

#include "src/core/view.h"

namespace tensor {

/// A contiguous copy of what `x` shows, as elements of `dtype`.
Tensor packed(const ConstView& x, DType dtype);

/// to = from, converted as astype does; the shapes are equal.
void convert_elements(const ConstView& from, const View& to);

}  // namespace tensor

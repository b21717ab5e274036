// Lines along one axis, in kernels that have one variable for the line and one for the place in it.
#pragma once

#include "src/kernels/cuda/generated/expression.h"
#include "src/kernels/cuda/generated/extents.h"
#include "src/trace/layout.h"

namespace tensor::cuda {

struct Lines {
  Shape extents;
  Strides strides;
  std::int64_t step;  // along a line
  Lines(const Layout& layout, int axis)
      : extents(layout.shape), strides(layout.strides), step(layout.strides[axis]) {
    extents.erase(axis);
    strides.erase(axis);
  }
  /// Of element `j` of `line`.
  std::string offset(Extents& numbers) const {
    return offset_text(extents, strides, "line", numbers, "line") + " + i64(j) * " +
           numbers.term(step);
  }
};

}  // namespace tensor::cuda

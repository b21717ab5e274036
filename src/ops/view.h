// Slices along given axes, as the other operators and indexing use them.
#pragma once

#include "tensor/handle.h"

namespace tensor {

/// x[start : : step] with `extent` elements, on every axis; the elements must exist.
Tensor slice_axes(const Tensor& x, const Dims& start, const Dims& extent, const Dims& step);

/// The same on one axis (not negative).
Tensor slice_axis(const Tensor& x, int axis, std::int64_t start, std::int64_t extent,
                  std::int64_t step = 1);

/// Different axes, none of them negative. Throws UserError naming `where`.
Dims distinct_axes(const Dims& axes, int rank, std::string_view where);

/// The numbers of a, then those of b.
Dims joined(Dims a, const Dims& b);

}  // namespace tensor

// What a kernel's results may differ by from those of the reference kernels.
#pragma once

#include <functional>

#include "src/trace/group.h"

namespace tensor {

/// The largest finite magnitude.
double largest_magnitude(const Tensor& x);
/// Of two tensors of one type and shape; infinite where one of the two is NaN and the other not.
double largest_difference(const Tensor& got, const Tensor& expected);
/// By how much the largest difference exceeds `step`, relative to the largest finite magnitude of
/// what is expected.
double relative_error(const Tensor& got, const Tensor& expected, double step = 0);

/// How far off a result is anyway: by a step where a group rounds numbers to integers, since one
/// that lies between two of them may become either.
double rounding_step(const Graph& graph, ValueId id);

/// The reference value of any node of a group, or that it reads.
using ReferenceOf = std::function<Tensor(ValueId)>;

/// The relative error that rounding explains: float32 sums of the longest length, 16 for the
/// handful of operators of a group, and a few roundings to the 16-bit type that a kernel may leave
/// out or place elsewhere, or of operands to tf32. Infinite where kernels may leave the range of
/// the numbers in which they calculate, and the reference, which has wider ones, does not.
double rounding_bound(const Graph& graph, const Group& group, const ReferenceOf& value);

}  // namespace tensor

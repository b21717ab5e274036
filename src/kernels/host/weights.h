// What compiling does to weights on the host, on several threads: constants are large, and all of
// them pass here whenever a model is compiled.
#pragma once

#include "tensor/tensor.h"

namespace tensor::cpu {

/// The bits of x.astype(dtype), but for those of NaNs; x itself where it has the type. Float32 to a
/// 16-bit type goes by vector instructions, and its elements stay in the order in which they lie in
/// memory, if they lie there without gaps.
Tensor converted(const Tensor& x, DType dtype, int threads);

/// A row-major tensor of `shape`, zeros but for the elements of x, which have the given strides (in
/// elements) from its first. x itself where that is how it lies in memory.
Tensor spread(const Tensor& x, const Shape& shape, const Strides& strides, int threads);

}  // namespace tensor::cpu

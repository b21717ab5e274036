// Operators on tensors of a device. The operators only say what they ask for: src/runtime defines
// these functions, because it alone can compile.
#pragma once

#include "src/ops/op.h"

namespace tensor {

/// An operator, not a view, on tensors of which at least one lies on a device: a graph of that one
/// node, compiled at its first call with such types and strides and kept. Numbers (0-d tensors of
/// the CPU) go along; UserError on other mixtures of devices. `type` is what `infer` said.
Tensor apply_on_device(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                       const TensorType& type);

/// Writes the elements of `from` to those of `to`: same type, same device, no shared memory.
void copy_on_device(const Tensor& from, const Tensor& to);

}  // namespace tensor

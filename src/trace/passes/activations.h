// Activations that a model, or the exporter of an ONNX file, spelled out: one operator each again.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// Rules of simplify.h. In f32 and f64 only: other types round each operator's result.
/// x * sigmoid(x) is silu(x).
std::optional<ValueId> composed_silu(Rewriter& rewriter, ValueId id, const Node& node);
/// x * 0.5 * (1 + erf(x / sqrt(2))) is gelu(x), in whatever order the three are multiplied.
std::optional<ValueId> composed_gelu(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

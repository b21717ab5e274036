// Attention on images whose channels come first.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule of simplify.h: values times the transpose of a softmax is the transpose of the softmax
/// times the transposed values, which is how attention is known.
std::optional<ValueId> turned_weights(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

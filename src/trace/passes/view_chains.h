// Chains of reshapes and transposes become one transpose between two reshapes.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule of simplify.h: a reshape or transpose at the end of a chain of such views with at least
/// two transposes (the patches of MobileViT: to images a channel, to patches, to tokens) becomes a
/// reshape that splits the axes of the chain's beginning, a transpose, and a reshape that joins
/// them. The first two are views wherever the value lies as it likes, which a chain that begins by
/// joining axes need not be; so at most one copy is made, of runs as long as there are.
std::optional<ValueId> view_chain(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

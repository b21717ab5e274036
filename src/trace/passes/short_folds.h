// Reductions of a few numbers as elementwise operators, which fuse with what is around them.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule of simplify.h: sum, mean, max and min of up to four numbers that are no neighbours (the
/// last axis stays) become operators on slices.
std::optional<ValueId> short_fold(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

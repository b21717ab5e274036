// Filters without what never lies on the image.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule of simplify.h: constant filters of convolutions lose lines and columns at both ends that
/// meet the padding alone, whatever the result (a dilation of 24 on an image of 14 x 14).
std::optional<ValueId> unread_taps(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

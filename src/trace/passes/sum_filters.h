// Sums of convolutions of one image: one convolution, whose filters are the sums of theirs, so that
// the branches of RepVGG and MobileOne cost nothing.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A sum of two branches as one convolution: conv2d(x, w, b) + conv2d(x, v, c) -> conv2d(x, w + v,
/// b + c), where all but x is constant, nothing else reads the two, and the pixels under one filter
/// are among those under the other. If `is_wide`, products round nothing, and the second branch may
/// be x itself, or x * s + t with a number a channel, too: else x would be rounded with them.
/// nullopt for anything else. Test: tests/trace/sum_filters_test.cpp.
std::optional<ValueId> sum_filters(Rewriter& r, const Node& node,
                                   const std::vector<std::vector<ValueId>>& readers, bool is_wide);

}  // namespace tensor

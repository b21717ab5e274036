// Batches of products whose right factor several of them share.
#pragma once

#include <optional>

#include "src/trace/rewrite.h"

namespace tensor {

/// A rule of simplify.h: where a matmul has one row in each place of its batch, and its right
/// factor is the same along an axis of that, the places along this axis become rows: heads by
/// (..., heads, places, 1, k) and (..., 1, places, k, n) are products of `heads` rows, each by a
/// factor that is packed once.
std::optional<ValueId> shared_factor(Rewriter& rewriter, ValueId id, const Node& node);

}  // namespace tensor

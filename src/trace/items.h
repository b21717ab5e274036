// Items: whether a function computes every item of a batch by itself.
#pragma once

#include <vector>

#include "src/trace/graph.h"

namespace tensor {

/// Axis 0 of the inputs in `is_batch` counts `items`, two or more. UserError unless axis 0 of every
/// output counts them, too, and what an output has of an item depends on that item of the inputs
/// alone: so that a part of the batch gives that part of the outputs. Operators of which this is
/// not known count as if they mixed items.
void check_items(const Graph& graph, const std::vector<bool>& is_batch, std::int64_t items);

}  // namespace tensor

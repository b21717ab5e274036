// A group in words, for reports.
#pragma once

#include <string>

#include "src/trace/fuse.h"

namespace tensor::detail {

/// "matmul, add, gelu"
std::string operators_of(const Graph& graph, const Group& group);
/// The module that most of the group's operators belong to: that of the first one with a note.
std::string place_of(const Graph& graph, const Group& group);

}  // namespace tensor::detail

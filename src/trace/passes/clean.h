// Constant folding, common subexpressions and dead code.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Replaces operators whose inputs are all constants by their value. Test:
/// tests/trace/passes_test.cpp.
Graph fold_constants(const Graph& graph);

/// Merges equal operators on equal inputs, and equal constants, then drops what no output needs
/// (inputs stay). Test: tests/trace/passes_test.cpp.
Graph eliminate_common_and_dead(const Graph& graph);

}  // namespace tensor

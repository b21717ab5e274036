// Constant folding, common subexpressions and dead code.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Replaces operators whose inputs are all constants by their value. Test:
/// tests/trace/passes_test.cpp.
Graph fold_constants(const Graph& graph);

/// Drops what no output needs (inputs stay), as what a pass has replaced. Test:
/// tests/trace/passes_test.cpp.
Graph drop_dead(const Graph& graph);

/// Merges equal operators on equal inputs, and equal constants, then drops the dead.
/// Test: tests/trace/passes_test.cpp.
Graph eliminate_common_and_dead(const Graph& graph);

}  // namespace tensor

// Only what is read is computed.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Cuts operators to the part of their results that is read, where that is no more than half of an
/// axis: of the last layer of a ViT, whose classifier reads the class token alone, what follows its
/// keys and values. A cut ends at operators that need all of the axis (a product its depth), and at
/// a product beside another that reads all of its rows: one kernel makes both. Values of the result
/// are those of the graph as it was; operators that no output needs are dropped. Test:
/// tests/trace/trim_test.cpp.
Graph trim(const Graph& graph);

}  // namespace tensor

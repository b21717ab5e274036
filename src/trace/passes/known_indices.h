// Positions that are within bounds by what computes them.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Lets take and take_along_axis clip indices which the operators that make them (argsort, argmax,
/// clip, sums of such) keep within bounds. That changes no result, and kernels that could not
/// report an index out of bounds may run them.
Graph known_indices(const Graph& graph);

/// For kernels, which cannot report a wrong index: what known_indices has not proved is looked up
/// clipped, and a check of the graph says whether an index was out of range. Graphs with choices,
/// whose sides may be out of range where they are not chosen, stay as they are.
Graph checked_indices(const Graph& graph);

}  // namespace tensor

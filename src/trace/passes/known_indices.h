// Positions that are within bounds by what computes them.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Lets take and take_along_axis clip indices which the operators that make them (argsort, argmax,
/// clip, sums of such) keep within bounds. That changes no result, and kernels that could not
/// report an index out of bounds may run them.
Graph known_indices(const Graph& graph);

}  // namespace tensor

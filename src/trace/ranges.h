// What the elements of values lie between, as far as the operators alone say.
#pragma once

#include <limits>
#include <vector>

#include "src/trace/graph.h"

namespace tensor {

/// Numbers that are NaN lie nowhere: a range says nothing about them.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

/// The range of every value of a graph.
std::vector<Range> ranges_of(const Graph& graph);

}  // namespace tensor

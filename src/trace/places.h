// Places: which axes of which values of a graph count the same places, operator by operator.
#pragma once

#include <vector>

#include "src/trace/factors.h"
#include "src/trace/graph.h"

namespace tensor {

/// The factors of every axis of a value.
using AxisFactors = std::vector<Factors::List>;

/// What an operator's operands and its result have in common. A constant counts as another one for
/// each operator that reads it. Blocked is what an operator does not compute place by place, what
/// callers give or get, and axes of operators of which this is not known. The depth of products is
/// not: its parts can be added up.
struct Places {
  Factors factors;
  std::vector<AxisFactors> results;                // of every value
  std::vector<std::vector<AxisFactors>> operands;  // of every operator, one for each input
};

Places places_of(const Graph& graph);

}  // namespace tensor

// What kernels of every device derive from the rows of elementwise operators
// (src/ops/pointwise.cpp).
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// Whether the operator computes every element from those of its operands at the same place.
bool is_elementwise(Op op);

/// The operators that a composed one stands for, none of them composed: a graph of numbers without
/// axes, f64 for f64 and f32 for all other types. nullptr for an operator that is not composed.
const Graph* formula_of(Op op, DType dtype);

/// What an element of an elementwise operator takes, the operators of its formula together.
struct ElementCost {
  int operators;     // 1 where it is not composed
  int series;        // as in its row
  int instructions;  // likewise
};
const ElementCost& element_cost(Op op);

/// How many operators nodes are, each that is composed counted as those of its formula.
std::size_t operator_count(const Graph& graph, const std::vector<ValueId>& nodes);

}  // namespace tensor

#include "src/kernels/elementwise.h"

#include <array>
#include <memory>

#include "src/trace/trace.h"

namespace tensor {
namespace {

constexpr std::size_t kOps = static_cast<std::size_t>(Op::count_);

Graph traced_formula(Op op, DType dtype) {
  const OpInfo& row = info(op);
  const std::vector<TensorType> types(static_cast<std::size_t>(row.min_inputs), {{}, dtype});
  const auto formula = [&](const std::vector<Tensor>& x) -> std::vector<Tensor> {
    return {row.elementwise.formula(x)};
  };
  return trace(formula, types);
}

// Appends the operators of a formula to `graph`, and returns what they compute.
ValueId expand(Graph& graph, const Graph& formula, const std::vector<ValueId>& operands) {
  std::vector<ValueId> values = operands;  // of the formula's nodes: its inputs come first
  for (ValueId id = formula.inputs().size(); id < formula.size(); ++id) {
    const Node& node = formula[id];
    if (node.kind == NodeKind::constant) {
      values.push_back(graph.add_constant(node.constant));
      continue;
    }
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(values[at(input)]);
    if (!is_elementwise(node.op))
      internal_error("formula", "got ", info(node.op).name, ", need elementwise operators");
    values.push_back(info(node.op).elementwise.formula
                         ? expand(graph, traced_formula(node.op, node.type.dtype), inputs)
                         : graph.add(node.op, inputs, node.attrs));
  }
  return values[at(formula.outputs().front())];
}

Graph expanded_formula(Op op, DType dtype) {
  const Graph formula = traced_formula(op, dtype);
  Graph graph;
  std::vector<ValueId> operands;
  for (const ValueId id : formula.inputs()) operands.push_back(graph.add_input(formula.type(id)));
  const ValueId result = expand(graph, formula, operands);
  if (graph[result].kind != NodeKind::operation || !(graph.type(result) == formula.type(0)))
    internal_error("formula", info(op).name, " gives ", graph.type(result), ", need an operator's ",
                   formula.type(0));
  graph.set_outputs({result});
  return graph;
}

using Formulas = std::array<std::unique_ptr<const Graph>, kOps>;

Formulas formulas_in(DType dtype) {
  Formulas formulas;
  for (const OpInfo& row : op_table())
    if (row.elementwise.formula)
      formulas[static_cast<std::size_t>(row.op)] =
          std::make_unique<const Graph>(expanded_formula(row.op, dtype));
  return formulas;
}

ElementCost cost_of(const OpInfo& row) {
  const Graph* formula = formula_of(row.op, f32);
  if (!formula) return {1, row.elementwise.series, row.elementwise.instructions};
  ElementCost sum{};
  for (const Node& node : formula->nodes()) {
    if (node.kind != NodeKind::operation) continue;
    const ElementCost part = cost_of(info(node.op));
    sum.operators += part.operators;
    sum.series += part.series;
    sum.instructions += part.instructions;
  }
  return sum;
}

}  // namespace

bool is_elementwise(Op op) { return info(op).pattern == Pattern::elementwise; }

const Graph* formula_of(Op op, DType dtype) {
  static const Formulas narrow = formulas_in(f32), wide = formulas_in(f64);
  return (dtype == f64 ? wide : narrow)[static_cast<std::size_t>(op)].get();
}

const ElementCost& element_cost(Op op) {
  // Asked for every node of every group that fusion looks at.
  static const auto costs = [] {
    std::array<ElementCost, kOps> all;
    for (const OpInfo& row : op_table()) all[static_cast<std::size_t>(row.op)] = cost_of(row);
    return all;
  }();
  return costs[static_cast<std::size_t>(op)];
}

std::size_t operator_count(const Graph& graph, const std::vector<ValueId>& nodes) {
  std::size_t count = 0;
  for (const ValueId id : nodes)
    count += static_cast<std::size_t>(element_cost(graph[id].op).operators);
  return count;
}

}  // namespace tensor

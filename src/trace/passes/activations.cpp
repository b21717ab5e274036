#include "src/trace/passes/activations.h"

#include <array>
#include <cmath>

namespace tensor {
namespace {

using Operands = std::array<ValueId, 2>;

// The operands of a new node, if it has that operator.
std::optional<Operands> operands(const Graph& graph, ValueId id, Op op) {
  if (!graph.is_op(id, op)) return std::nullopt;
  return Operands{graph[id].inputs[0], graph[id].inputs[1]};
}

// Whether a value is a constant of one number near that one, as far as f32 tells them apart.
bool is_number(const Graph& graph, ValueId id, double number) {
  if (!graph.is_constant(id) || graph[id].constant.size() != 1) return false;
  return std::abs(graph[id].constant.item<double>() - number) <= 0x1p-22 * number;
}

// The other operand where one is the number.
std::optional<ValueId> beside(const Graph& graph, const std::optional<Operands>& pair,
                              double number) {
  if (!pair) return std::nullopt;
  for (const std::size_t side : {0, 1})
    if (is_number(graph, (*pair)[1 - side], number)) return (*pair)[side];
  return std::nullopt;
}

// Whether `sum` is 1 + erf(x / sqrt(2)).
bool is_distribution(const Graph& graph, ValueId sum, ValueId x) {
  const auto erf = beside(graph, operands(graph, sum, Op::add), 1);
  if (!erf || !graph.is_op(*erf, Op::erf)) return false;
  return beside(graph, operands(graph, graph[*erf].inputs[0], Op::multiply), M_SQRT1_2) == x;
}

bool is_wide(const Node& node) { return node.type.dtype == f32 || node.type.dtype == f64; }

ValueId made_of(Rewriter& r, Op op, ValueId x, const Node& node) {
  return r.to().add(op, {x}, {}, node.where);
}

}  // namespace

std::optional<ValueId> composed_silu(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::multiply || !is_wide(node)) return std::nullopt;
  const auto in = r.inputs(node);
  for (const std::size_t side : {0, 1}) {
    const ValueId x = in[side], gate = in[1 - side];
    if (r.to().is_op(gate, Op::sigmoid) && r.to()[gate].inputs[0] == x &&
        r.to().type(x) == node.type)
      return made_of(r, Op::silu, x, node);
  }
  return std::nullopt;
}

std::optional<ValueId> composed_gelu(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::multiply || !is_wide(node)) return std::nullopt;
  const Graph& graph = r.to();
  const auto in = r.inputs(node);
  for (const std::size_t side : {0, 1}) {
    const auto inner = operands(graph, in[side], Op::multiply);
    if (!inner) continue;
    const std::array<ValueId, 3> factors = {(*inner)[0], (*inner)[1], in[1 - side]};
    for (std::size_t half = 0; half < 3; ++half) {
      const ValueId a = factors[(half + 1) % 3], b = factors[(half + 2) % 3];
      if (!is_number(graph, factors[half], 0.5)) continue;
      for (const auto& [x, sum] : {Operands{a, b}, Operands{b, a}})
        if (is_distribution(graph, sum, x) && graph.type(x) == node.type)
          return made_of(r, Op::gelu, x, node);
    }
  }
  return std::nullopt;
}

}  // namespace tensor

#include "src/kernels/cpu/epilogue.h"

#include <algorithm>

#include "src/kernels/match/block_shape.h"

namespace tensor::cpu {
namespace {

std::optional<double> number_of(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id) || graph[id].constant.size() != 1) return std::nullopt;
  return graph[id].constant.item<double>();
}

std::optional<EpilogueStep> step_of(const Graph& graph, ValueId id, ValueId value) {
  const Node& node = graph[id];
  if (node.inputs.size() == 1) return EpilogueStep{node.op};
  if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return std::nullopt;
  const bool first = node.inputs[0] == value;
  if (!first && node.op != Op::add && node.op != Op::multiply) return std::nullopt;
  const ValueId other = node.inputs[first ? 1 : 0];
  if (const auto number = number_of(graph, other)) return EpilogueStep{node.op, -1, *number};
  return EpilogueStep{node.op, other};
}

}  // namespace

std::optional<Anchored> match_anchored(const Graph& graph, const Group& group, Op anchor) {
  if (group.writes.size() != 1 || !graph.is_op(group.nodes.front(), anchor)) return std::nullopt;
  Anchored result{group.nodes.front(), group.nodes.front(), {}};
  const Shape shape = graph.type(result.anchor).shape;
  // Ascending order is the order of a chain: every next node must read the value so far, and
  // nothing else inside.
  for (std::size_t i = 1; i < group.nodes.size(); ++i) {
    const ValueId id = group.nodes[i];
    const auto& inputs = graph[id].inputs;
    if (std::count(inputs.begin(), inputs.end(), result.result) != 1 ||
        !(graph.type(id).shape == shape) || !is_float(graph.type(id).dtype))
      return std::nullopt;
    for (const ValueId input : inputs)
      if (input != result.result && !std::count(group.reads.begin(), group.reads.end(), input))
        return std::nullopt;
    const auto step = step_of(graph, id, result.result);
    if (!step) return std::nullopt;
    result.steps.push_back(*step);
    result.result = id;
  }
  return group.writes.front() == result.result ? std::optional(result) : std::nullopt;
}

}  // namespace tensor::cpu

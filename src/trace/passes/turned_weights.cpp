#include "src/trace/passes/turned_weights.h"

#include "src/core/view.h"

namespace tensor {
namespace {

Dims last_two_turned(int rank) {
  Dims axes;
  for (int axis = 0; axis < rank; ++axis)
    axes.push_back(axis < rank - 2 ? axis : 2 * rank - 3 - axis);
  return axes;
}

// A softmax over its last axis.
bool are_weights(const Graph& graph, ValueId id) {
  if (!graph.is_op(id, Op::softmax)) return false;
  const int rank = graph.type(id).shape.rank();
  return normalize_axis(graph[id].attrs.integer("axis"), rank, "softmax") == rank - 1;
}

}  // namespace

std::optional<ValueId> turned_weights(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::matmul) return std::nullopt;
  const auto in = r.inputs(node);
  const Graph& graph = r.to();
  if (!graph.is_op(in[1], Op::transpose) || are_weights(graph, in[0])) return std::nullopt;
  const ValueId weights = graph[in[1]].inputs[0];
  const int rank = graph.type(weights).shape.rank(), left = graph.type(in[0]).shape.rank();
  if (!are_weights(graph, weights) || rank < 2 || left < 2) return std::nullopt;
  const Dims axes = graph[in[1]].attrs.dims("axes"), turned = last_two_turned(rank);
  for (int axis = 0; axis < rank; ++axis)
    if (normalize_axis(axes[axis], rank, "transpose") != turned[axis]) return std::nullopt;
  const auto transposed = [&](ValueId value, int value_rank) {
    return r.to().add(Op::transpose, {value}, {{"axes", last_two_turned(value_rank)}}, node.where);
  };
  const ValueId values = transposed(in[0], left);
  const ValueId product = r.to().add(Op::matmul, {weights, values}, node.attrs, node.where);
  return transposed(product, node.type.shape.rank());
}

}  // namespace tensor

#include "src/kernels/work.h"

#include <algorithm>

namespace tensor {
namespace {

double elements(const TensorType& type) { return static_cast<double>(num_elements(type.shape)); }

// Multiplications and additions of one operator; an elementwise operator counts one an element.
double flops_of(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  const double out = elements(node.type);
  const auto shape = [&](std::size_t i) -> const Shape& {
    return graph.type(node.inputs[i]).shape;
  };
  switch (node.op) {
    case Op::matmul:
    case Op::quantized_matmul:
      return 2 * out * static_cast<double>(shape(0).back());
    case Op::quantized_conv2d: {
      const Shape& weights = shape(1);
      return 2 * out * static_cast<double>(weights[1] * weights[3]);
    }
    case Op::conv2d:
      return 2 * out *
             static_cast<double>(num_elements(shape(1)) / std::max<std::int64_t>(shape(1)[0], 1));
    default:
      return std::max(out, elements(graph.type(node.inputs[0])));
  }
}

}  // namespace

Work work_of(const Graph& graph, const Group& group) {
  Work work;
  for (const ValueId id : group.nodes) work.flops += flops_of(graph, id);
  const auto bytes = [&](ValueId id) {
    return elements(graph.type(id)) * static_cast<double>(item_size(graph.type(id).dtype));
  };
  for (const ValueId id : group.reads) work.bytes += bytes(id);
  for (const ValueId id : group.writes) work.bytes += bytes(id);
  return work;
}

}  // namespace tensor

// The table of kernel families, the work of a group, and the cost function made from both.
#include "src/kernels/cpu/families.h"

#include <algorithm>

namespace tensor::cpu {
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
      return 2 * out * static_cast<double>(shape(0).back());
    case Op::conv2d:
      return 2 * out *
             static_cast<double>(num_elements(shape(1)) / std::max<std::int64_t>(shape(1)[0], 1));
    case Op::conv_transpose2d:
      return 2 * elements(graph.type(node.inputs[0])) *
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

std::span<const Family> cpu_families() {
  static const std::vector<Family> table = {
#ifdef TENSOR_WITH_ONEDNN
      kGemm,      kConv,
#endif
      kAttention, kRow,  kPointwise, kImage, kCopy, kReference,
  };
  return table;
}

CostFn cpu_cost(const Machine& machine) {
  return [machine](const Graph& graph, const Group& group) {
    GroupCost best;
    const auto families = cpu_families();
    for (std::size_t i = 0; i < families.size(); ++i)
      if (const auto time = families[i].estimate(graph, group, machine);
          time && *time < best.microseconds)
        best = {static_cast<int>(i), *time};
    return best;
  };
}

}  // namespace tensor::cpu

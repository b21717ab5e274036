#include "src/kernels/host/reference.h"

#include <algorithm>

#include "src/kernels/work.h"

namespace tensor::cpu {

ReferenceOperator::ReferenceOperator(const LaidOutGraph& laid, const Group& group)
    : node_(laid.graph[group.nodes.front()]) {
  const auto layout = [&](ValueId id) { return laid.layouts[at(id)]; };
  for (const ValueId id : node_.inputs) {
    operands_.push_back(static_cast<std::size_t>(
        std::find(group.reads.begin(), group.reads.end(), id) - group.reads.begin()));
    views_.push_back({nullptr, laid.graph.type(id).dtype, layout(id).shape, layout(id).strides});
  }
  out_ = {nullptr, node_.type.dtype, node_.type.shape, layout(group.nodes.front()).strides};
  out_operand_ = group.reads.size();
}

void ReferenceOperator::run(std::span<std::byte* const> operands) const {
  std::vector<ConstView> views = views_;
  for (std::size_t i = 0; i < views.size(); ++i) views[i].data = operands[operands_[i]];
  View out = out_;
  out.data = operands[out_operand_];
  info(node_.op).eval(views, node_.attrs, out);
}

std::optional<double> reference_us(const Graph& graph, const Group& group) {
  constexpr double kGops = 0.2;  // elements of four bytes, or operations, in one thread
  if (group.nodes.size() != 1) return std::nullopt;
  const Work work = work_of(graph, group);
  return (work.flops + work.bytes / 4) / (kGops * 1e3);
}

}  // namespace tensor::cpu

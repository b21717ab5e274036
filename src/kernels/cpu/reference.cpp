// The reference family: any single operator through its reference kernel. Slow, but it always
// works.
#include <algorithm>

#include "src/kernels/cpu/families.h"

namespace tensor::cpu {
namespace {

class ReferenceKernel : public Kernel {
 public:
  ReferenceKernel(const LaidOutGraph& laid, const Group& group)
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

  void run(std::span<std::byte* const> operands, std::byte*) const override {
    std::vector<ConstView> views = views_;
    for (std::size_t i = 0; i < views.size(); ++i) views[i].data = operands[operands_[i]];
    View out = out_;
    out.data = operands[out_operand_];
    info(node_.op).eval(views, node_.attrs, out);
  }
  std::string description() const override { return "reference"; }

 private:
  Node node_;
  std::vector<std::size_t> operands_;  // of every input of the node; a value may be read twice
  std::vector<ConstView> views_;
  View out_;
  std::size_t out_operand_ = 0;
};

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  if (group.nodes.size() != 1) return std::nullopt;
  const Work work = work_of(graph, group);
  return machine.dispatch_us + (work.flops + work.bytes / 4) / (machine.reference_gops * 1e3);
}

std::unique_ptr<Kernel> build(const LaidOutGraph& laid, const Group& group, const Machine&) {
  return std::make_unique<ReferenceKernel>(laid, group);
}

}  // namespace

const Family kReference = {"reference", estimate, build};

}  // namespace tensor::cpu

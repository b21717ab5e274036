// The host family: any single operator through its CPU reference kernel, its operands copied there
// and back. Slow, but it always works.
#include "src/kernels/cpu/families.h"
#include "src/kernels/cuda/families.h"

namespace tensor::cuda {
namespace {

constexpr double kSynchronizeUs = 30;  // the GPU stands still meanwhile

cpu::Machine host() { return cpu::this_machine(1); }

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto compute = cpu::kReference.estimate(graph, group, host());
  if (!compute) return std::nullopt;
  return kSynchronizeUs + *compute + work_of(graph, group).bytes / machine.host_gbps / 1e3;
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine&) {
  Lowered lowered;
  const std::shared_ptr<const cpu::Kernel> kernel = cpu::kReference.build(laid, group, host());
  lowered.on_host = [kernel](std::span<std::byte* const> operands) {
    kernel->run(operands, nullptr);
  };
  lowered.description = "on the host";
  return lowered;
}

}  // namespace

const Family kHost = {"host", estimate, lower};

}  // namespace tensor::cuda

// The host family: any single operator through its reference kernel, its operands copied there and
// back. Slow, but it always works.
#include "src/kernels/host/reference.h"

#include "src/kernels/cuda/families.h"

namespace tensor::cuda {
namespace {

constexpr double kSynchronizeUs = 33;  // the GPU stands still meanwhile

std::optional<double> estimate(const Graph& graph, const Group& group, const Machine& machine) {
  const auto compute = cpu::reference_us(graph, group);
  if (!compute) return std::nullopt;
  return kSynchronizeUs + *compute + work_of(graph, group).bytes / machine.host_gbps / 1e3;
}

Lowered lower(const LaidOutGraph& laid, const Group& group, const Machine&) {
  Lowered lowered;
  lowered.on_host = [reference = cpu::ReferenceOperator(laid, group)](
                        std::span<std::byte* const> operands) { reference.run(operands); };
  lowered.description = "on the host";
  return lowered;
}

}  // namespace

const Family kHost = {"host", estimate, lower};

}  // namespace tensor::cuda

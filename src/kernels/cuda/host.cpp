// The host family: any single operator through its reference kernel, its operands copied there and
// back. Slow, but it always works.
#include "src/kernels/host/reference.h"

#include "src/kernels/cuda/families.h"

namespace tensor::cuda {
namespace {

Lowered lower(const Isolated& alone) {
  Lowered lowered;
  lowered.on_host = [reference = cpu::ReferenceOperator(alone.laid, alone.group)](
                        std::span<std::byte* const> operands) { reference.run(operands); };
  lowered.description = "on the host";
  return lowered;
}

std::optional<Implementation> consider(const Isolated& alone, const Machine& machine) {
  // One device alone knows a summand only.
  if (alone.laid.graph.is_op(alone.group.nodes[0], Op::all_reduce)) return std::nullopt;
  const auto compute = cpu::reference_us(alone.laid.graph, alone.group);
  if (!compute) return std::nullopt;
  const double bytes = work_of(alone.laid.graph, alone.group).bytes;
  return Implementation{
      machine.times.rates.synchronize_us + *compute + bytes / machine.host_gbps / 1e3, lower};
}

}  // namespace

const Family kHost = {"host", consider};

}  // namespace tensor::cuda

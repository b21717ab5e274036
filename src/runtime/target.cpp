#include "src/runtime/target.h"

#include <algorithm>

#include "src/kernels/cuda/family.h"
#include "src/runtime/cpu_engine.h"
#include "src/runtime/cuda_engine.h"

namespace tensor::detail {
namespace {

bool reads_narrow(const Graph& graph, const Group& group) {
  return std::any_of(group.reads.begin(), group.reads.end(), [&](ValueId id) {
    return graph.type(id).dtype == bf16 || graph.type(id).dtype == f16;
  });
}

bool is_rounded(const Graph& graph, const Group& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(),
                     [&](ValueId id) { return graph[id].attrs.flag("tf32", false); });
}

Target cuda_target(const Device& where) {
  cuda::Device& device = cuda::Device::get(where.index());
  const cuda::Machine machine = cuda::machine_of(device.info());
  Target target;
  target.device = where;
  target.name = machine.device.name;
  target.cost = cuda::cuda_cost(machine);
  target.family_name = [](int family) {
    return cuda::cuda_families()[static_cast<std::size_t>(family)].name;
  };
  target.roofline_us = [machine](const Graph& graph, const Group& group) {
    const Work work = work_of(graph, group);
    const double rounded = is_rounded(graph, group) ? machine.tf32_tflops : 0;
    const double peak =
        reads_narrow(graph, group) ? machine.tensor_tflops : std::max(machine.f32_tflops, rounded);
    return std::max(work.flops / (peak * 1e6), work.bytes / (machine.memory_gbps * 1e3));
  };
  target.build = [machine, &device](const Program& program) -> std::unique_ptr<Engine> {
    return std::make_unique<CudaEngine>(program, device, machine);
  };
  return target;
}

}  // namespace

Target cpu_target(const cpu::Machine& machine) {
  Target target;
  target.name = std::to_string(machine.threads) + " threads";
  target.cost = cpu::cpu_cost(machine);
  target.family_name = [](int family) {
    return cpu::cpu_families()[static_cast<std::size_t>(family)].name;
  };
  target.roofline_us = [machine](const Graph& graph, const Group& group) {
    const Work work = work_of(graph, group);
    const double bandwidth =
        work.bytes > machine.cache_bytes ? machine.memory_gbps : machine.cache_gbps;
    const double narrow = std::max(machine.bf16_gflops, machine.tile_gflops);
    const double peak = reads_narrow(graph, group) ? narrow : machine.f32_gflops;
    return std::max(work.flops / (peak * 1e3), work.bytes / (bandwidth * 1e3));
  };
  target.build = [machine](const Program& program) -> std::unique_ptr<Engine> {
    return std::make_unique<CpuEngine>(program, machine);
  };
  return target;
}

Target target_of(const Device& device, int threads) {
  return device.is_cuda() ? cuda_target(device) : cpu_target(cpu::this_machine(threads));
}

}  // namespace tensor::detail

#include "src/runtime/target.h"
#include "src/core/parallel.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>

#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/templates.h"
#include "src/runtime/cpu_engine.h"
#include "src/runtime/cuda_engine.h"
#include "tensor/error.h"
#include "tensor/text.h"

namespace tensor::detail {
namespace {

bool reads(const Graph& graph, const Group& group, DType dtype) {
  return std::any_of(group.reads.begin(), group.reads.end(),
                     [=, &graph](ValueId id) { return graph.type(id).dtype == dtype; });
}
bool reads_narrow(const Graph& graph, const Group& group) {
  return reads(graph, group, f16) || reads(graph, group, bf16);
}

bool is_rounded(const Graph& graph, const Group& group) {
  return std::any_of(group.nodes.begin(), group.nodes.end(),
                     [&](ValueId id) { return graph[id].attrs.flag("tf32", false); });
}

// What stands after the colon in the first line of a file of /proc that begins with `name`.
std::string proc_text(const char* path, std::string_view name) {
  Classic<std::ifstream> file(path);
  for (std::string line; std::getline(file, line);)
    if (const std::size_t colon = line.find(':'); line.starts_with(name)) {
      if (colon == std::string::npos || colon + 2 >= line.size()) return {};
      return line.substr(colon + 2);
    }
  return {};
}

// "580.65.06" of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release ..."
std::string driver_version() {
  TextReader words(proc_text("/proc/driver/nvidia/version", "NVRM version"));
  for (std::string word; words >> word;)
    if (is_digit(word[0]) && word.find('.') != std::string::npos) return word;
  return {};
}

}  // namespace

Target cuda_target(const cuda::DeviceInfo& info) { return cuda_target(cuda::machine_of(info)); }

Target cuda_target(const cuda::Machine& machine) {
  const cuda::DeviceInfo& info = machine.device;
  Target target;
  target.device = Device("cuda:" + std::to_string(info.index));
  target.name = info.name, target.tuned_as = info.tuned_as();
  target.driver = driver_version(), target.kernels = cuda::device_headers_checksum();
  const auto families = std::make_shared<cuda::Families>(cuda::cuda_families(), machine);
  target.offers = families;
  target.folds_norms = machine.has_wgmma;
  target.byte_channels = machine.has_wgmma ? cuda::kByteChannels : 0;
  target.any_extent = machine.any_extent;
  // The same instructions at the same rate, where there are Tensor Cores for both.
  target.bf16_is_like_f16 =
      cuda::multiplier_of(bf16, false, machine) == cuda::multiplier_of(f16, false, machine);
  const cuda::Ceilings ceilings = cuda::ceilings_of(machine);
  if (ceilings.are_measured) target.peak_rates = "measured, those of f32 assumed";
  target.roofline_us = [machine, ceilings](const Graph& graph, const Group& group) {
    const Work work = work_of(graph, group);
    const double rounded = is_rounded(graph, group) ? machine.tf32_tflops : 0;
    const double peak = reads(graph, group, f16)    ? ceilings.f16_tflops
                        : reads(graph, group, bf16) ? ceilings.bf16_tflops
                                                    : std::max(machine.f32_tflops, rounded);
    return std::max(work.flops / (peak * 1e6), work.bytes / (ceilings.memory_gbps * 1e3));
  };
  target.lower = [families](const LaidOutGraph& laid, const FusionPlan& plan) {
    auto kernels = std::make_unique<CudaKernels>();
    std::map<std::tuple<int, int, std::string>, std::size_t> first;  // group that runs so
    for (const Group& group : plan.groups) {
      const auto [known, is_new] =
          first.try_emplace({group.kind, group.family, group.schedule}, kernels->groups.size());
      kernels->groups.push_back(group.kind < 0 || is_new ? families->build(laid, group)
                                                         : kernels->groups[known->second]);
    }
    return kernels;
  };
  target.build = [index = info.index](const Program& program, std::unique_ptr<Kernels> kernels) {
    return std::make_unique<CudaEngine>(program, cuda::Device::get(index),
                                        std::move(static_cast<CudaKernels&>(*kernels)));
  };
  return target;
}

std::string processor_of(const char* cpuinfo) {
  const std::string name = proc_text(cpuinfo, "model name");
  if (!name.empty()) return name;
  const std::string part = proc_text(cpuinfo, "CPU part");
  return part.empty() ? "cpu" : "cpu " + proc_text(cpuinfo, "CPU implementer") + " part " + part;
}

Target cpu_target(const cpu::Machine& machine, int spin_us) {
  Target target;
  target.name = std::to_string(machine.threads) + " threads";
  target.tuned_as = processor_of("/proc/cpuinfo") + ", " + target.name;
  target.multiplies_bf16 = machine.has_bf16;
  const auto families = std::make_shared<cpu::Families>(cpu::cpu_families(), machine);
  target.offers = families;
  target.roofline_us = [machine](const Graph& graph, const Group& group) {
    const Work work = work_of(graph, group);
    const double bandwidth =
        work.bytes > machine.cache_bytes ? machine.memory_gbps : machine.cache_gbps;
    const double narrow = std::max(machine.bf16_gflops, machine.tile_gflops);
    const double peak = reads_narrow(graph, group) ? narrow : machine.f32_gflops;
    return std::max(work.flops / (peak * 1e3), work.bytes / (bandwidth * 1e3));
  };
  target.lower = [families](const LaidOutGraph& laid, const FusionPlan& plan) {
    auto kernels = std::make_unique<CpuKernels>();
    for (const Group& group : plan.groups) kernels->groups.push_back(families->build(laid, group));
    return kernels;
  };
  target.build = [threads = machine.threads, spin_us](const Program& program,
                                                      std::unique_ptr<Kernels> kernels) {
    return std::make_unique<CpuEngine>(program, std::move(static_cast<CpuKernels&>(*kernels)),
                                       threads, spin_us);
  };
  return target;
}

CostFn Target::cost() const { return cost_of(offers); }

Target target_of(const Device& device, int threads, bool any_extent, int spin_us) {
  if (spin_us < -1)
    fail("compile", "got spin_us ", spin_us,
         ", need microseconds from 0 on, or -1 for those of all");
  if (!device.is_cuda())
    return cpu_target(cpu::this_machine(cpu::threads_within(threads)), spin_us);
  cuda::Machine machine = cuda::machine_of(cuda::Device::get(device.index()).info());
  machine.any_extent = any_extent;
  return cuda_target(machine);
}

}  // namespace tensor::detail

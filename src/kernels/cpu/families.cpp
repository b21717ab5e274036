// The table of kernel families, and how many threads a group has.
#include "src/kernels/cpu/families.h"

#include <algorithm>
#include <map>

#include "src/kernels/work.h"
#ifdef TENSOR_WITH_ONEDNN
#include "src/kernels/cpu/onednn.h"
#include "src/trace/isolate.h"
#include "tensor/error.h"
#endif

namespace tensor::cpu {
std::span<const Family> cpu_families() {
  static const std::vector<Family> table = {
#ifdef TENSOR_WITH_ONEDNN
      kGemm,      kConv,
#endif
      kDepthwise, kTileProduct, kProduct, kEightBits, kAttention, kFolds,
      kRow,       kPointwise,   kImage,   kCopy,      kReference,
  };
  return table;
}

namespace {

constexpr const char *kLoops = "loops", *kThreads = "threads";

}  // namespace

Sketch::Knob threads_knob(const Machine& machine) {
  Sketch::Knob knob{kThreads, {}};
  for (int n = 1; n < machine.threads; n *= 2) knob.values.push_back(n);
  knob.values.push_back(machine.threads);
  return knob;
}

std::optional<int> threads_of(const Schedule& schedule) { return schedule.value(kThreads); }

Machine with_threads(const Machine& machine, int threads) {
  Machine m = machine;
  const double share = static_cast<double>(threads) / std::max(machine.threads, 1);
  m.threads = threads;
  for (double* rate : {&m.f32_gflops, &m.bf16_gflops, &m.tile_gflops, &m.byte_gflops, &m.cache_gbps,
                       &m.simple_gops, &m.special_gops})
    *rate *= share;
  // Few threads come near to what all get from memory, and one needs no others to be woken up.
  m.memory_gbps *= std::min(1.0, 2 * share);
  if (threads == 1) m.dispatch_us = 0;
  return m;
}

namespace {

Space loops_space(const Work& work, const Machine& machine, const Estimate& microseconds) {
  Space space;
  const Sketch::Knob threads = threads_knob(machine);
  space.sketches = {{kLoops, {threads}}};
  space.fault = [](const Schedule&) { return std::string(); };
  std::map<int, double> estimates;
  for (const int n : threads.values) estimates[n] = microseconds(with_threads(machine, n));
  space.model_us = [estimates](const Schedule& s) {
    return estimates.at(threads_of(s).value_or(1));
  };
  space.features = [work](const Schedule& s) {
    const double threads = threads_of(s).value_or(1);
    Features f;
    f.sketch = kLoops;
    f.flops = work.flops, f.memory_bytes = work.bytes;
    f.threads = f.processors = threads;
    return f.values();
  };
  space.chosen = {kLoops, {{kThreads, machine.threads}}};
  return space;
}

// The machine with as many threads as the schedule says.
Machine scheduled(const Machine& machine, const std::string& schedule) {
  if (schedule.empty()) return machine;
  const std::vector<int> counts = threads_knob(machine).values;
  const auto threads = threads_of(Schedule::parse(schedule));
  return threads && std::count(counts.begin(), counts.end(), *threads) > 0
             ? with_threads(machine, *threads)
             : machine;
}

std::unique_ptr<Kernel> built(const Build& build, const Isolated& alone, const Machine& machine) {
  const Machine scheduled_machine = scheduled(machine, alone.group.schedule);
#ifdef TENSOR_WITH_ONEDNN
  try {
    return build(alone, scheduled_machine);
  } catch (const dnnl::error& error) {
    internal_error("oneDNN", error.what(), ": ", problem_text(alone.laid.graph, alone.group));
  }
#else
  return build(alone, scheduled_machine);
#endif
}

}  // namespace

Implementation implementation(const Isolated& alone, const Machine& machine,
                              const Estimate& microseconds, const Build& build,
                              std::function<Space()> space) {
  if (!space && machine.threads > 1)
    space = [=, work = work_of(alone.laid.graph, alone.group)] {
      return loops_space(work, machine, microseconds);
    };
  return {microseconds(machine),
          [=](const Isolated& group) { return built(build, group, machine); }, std::move(space)};
}

}  // namespace tensor::cpu

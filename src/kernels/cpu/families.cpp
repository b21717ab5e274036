// The table of kernel families, the cost function made from it, and how many threads a group has.
#include "src/kernels/cpu/families.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "src/kernels/work.h"
#ifdef TENSOR_WITH_ONEDNN
#include "src/kernels/cpu/onednn/onednn.h"
#include "src/trace/isolate.h"
#include "tensor/error.h"
#endif

namespace tensor::cpu {
std::span<const Family> cpu_families() {
  static const std::vector<Family> table = {
#ifdef TENSOR_WITH_ONEDNN
      kGemm,        kConv,
#endif
      kTileProduct, kAttention, kRow, kPointwise, kImage, kCopy, kReference,
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

// ---- Threads: all of them are too many for a small group.

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
  for (double* rate : {&m.f32_gflops, &m.bf16_gflops, &m.tile_gflops, &m.cache_gbps, &m.simple_gops,
                       &m.special_gops})
    *rate *= share;
  // Few threads come near to what all get from memory, and one needs no others to be woken up.
  m.memory_gbps *= std::min(1.0, 2 * share);
  if (threads == 1) m.dispatch_us = 0;
  return m;
}

std::optional<::tensor::Space> space_of(const Family& family, const Graph& graph,
                                        const Group& group, const Machine& machine) {
  if (family.space)
    if (auto own = family.space(graph, group, machine)) return own;
  if (machine.threads < 2) return std::nullopt;
  ::tensor::Space space;
  const Sketch::Knob threads = threads_knob(machine);
  space.sketches = {{kLoops, {threads}}};
  space.fault = [](const Schedule&) { return std::string(); };
  std::map<int, double> estimates;
  for (const int n : threads.values)
    estimates[n] = family.estimate(graph, group, with_threads(machine, n)).value_or(HUGE_VAL);
  space.model_us = [estimates](const Schedule& s) {
    return estimates.at(threads_of(s).value_or(1));
  };
  const Work work = work_of(graph, group);
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

std::unique_ptr<Kernel> build_group(const LaidOutGraph& laid, const Group& group,
                                    const Machine& machine) {
  const Family& family = cpu_families()[static_cast<std::size_t>(group.family)];
  Machine m = machine;
  if (!group.schedule.empty()) {
    const std::vector<int> counts = threads_knob(machine).values;
    const auto threads = threads_of(Schedule::parse(group.schedule));
    if (threads && std::count(counts.begin(), counts.end(), *threads) > 0)
      m = with_threads(machine, *threads);
  }
#ifdef TENSOR_WITH_ONEDNN
  try {
    return family.build(laid, group, m);
  } catch (const dnnl::error& error) {
    internal_error(family.name, error.what(), ": ", problem_text(laid.graph, group));
  }
#else
  return family.build(laid, group, m);
#endif
}

}  // namespace tensor::cpu

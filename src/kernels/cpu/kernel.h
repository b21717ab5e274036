// CPU kernels: how a fused group runs on this machine. Each family is one row of cpu_families(): it
// declines a group by returning nothing, otherwise estimates its time and builds it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/features.h"
#include "src/kernels/schedule.h"
#include "src/kernels/work.h"
#include "src/trace/fuse.h"
#include "src/trace/layout.h"

namespace tensor::cpu {

/// What the cost model knows of a machine: data, not code. Rates are for all `threads` together.
struct Machine {
  int threads = 1;
  double f32_gflops = 100;  // fused multiply-adds of f32 in a well-blocked product
  double bf16_gflops =
      100;  // the same for bf16 operands; equal to f32 where there is no instruction
  double memory_gbps = 20;        // streaming from memory
  double cache_gbps = 100;        // streaming from the last-level cache
  double cache_bytes = 16 << 20;  // of the last-level cache
  double simple_gops = 10;        // elementwise operations such as add, through registers
  double special_gops = 1;        // exp, erf, tanh
  double dispatch_us = 3;         // starting one kernel on all threads
  bool has_bf16 = false;          // the processor multiplies bf16
  double tile_gflops = 0;         // bf16 products by tile instructions (AMX); 0: has none
};

/// This machine. Its rates are assumed from the instruction set and the number of threads, not
/// measured: the same model gets the same plan every time. `threads` 0 means all.
Machine this_machine(int threads = 0);

/// A group compiled for fixed types and strides. Immutable: several threads may run it at a time,
/// each with its own operands and scratch.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// `operands` are the first elements of the group's reads, then of its writes, in the group's
  /// order. `scratch` has scratch_bytes() bytes, 64-byte aligned.
  virtual void run(std::span<std::byte* const> operands, std::byte* scratch) const = 0;
  virtual std::size_t scratch_bytes() const { return 0; }
  /// What runs, for the report: "onednn brg:avx512_core + gelu".
  virtual std::string description() const = 0;
};

struct Family {
  std::string_view name;
  /// Microseconds on `machine`, nullopt when the family cannot run the group.
  std::optional<double> (*estimate)(const Graph& graph, const Group& group, const Machine& machine);
  /// Builds an accepted group. The layouts are those of `laid.graph`, which the group belongs to.
  /// With the group's schedule, where that is one of its space; otherwise with the chosen one.
  std::unique_ptr<Kernel> (*build)(const LaidOutGraph& laid, const Group& group,
                                   const Machine& machine);
  /// What may be tried for an accepted group; null where there is one way only.
  std::optional<::tensor::Space> (*space)(const Graph& graph, const Group& group,
                                          const Machine& machine) = nullptr;
};

/// The table in families.cpp; the last family, reference, runs any single operator.
std::span<const Family> cpu_families();

/// The cheapest family of a group.
CostFn cpu_cost(const Machine& machine);

/// The machine as if it had so many threads of those it has.
Machine with_threads(const Machine& machine, int threads);
/// The knob of schedules that say how many threads run a kernel: 1, 2, 4, ... or all.
Sketch::Knob threads_knob(const Machine& machine);
std::optional<int> threads_of(const Schedule& schedule);
/// What may be tried for a group that the family accepts: the family's space, or where it has none
/// how many threads the loops run on ("loops threads=4"); nullopt for one thread.
std::optional<::tensor::Space> space_of(const Family& family, const Graph& graph,
                                        const Group& group, const Machine& machine);
/// Builds a group of a plan by its family, as its schedule says.
std::unique_ptr<Kernel> build_group(const LaidOutGraph& laid, const Group& group,
                                    const Machine& machine);

}  // namespace tensor::cpu

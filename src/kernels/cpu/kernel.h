// CPU kernels: how a fused group runs on this machine. Each family is one row of cpu_families().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/kernels/family.h"
#include "src/kernels/features.h"
#include "src/kernels/work.h"

namespace tensor::cpu {

/// What the cost model knows of a machine: data, not code. Rates are for all `threads` together.
struct Machine {
  int threads = 1;
  double f32_gflops = 100;  // fused multiply-adds of f32 in a well-blocked product
  double bf16_gflops =
      100;  // the same for bf16 operands; equal to f32 where there is no instruction
  double memory_gbps = 20;              // streaming from memory
  double cache_gbps = 100;              // streaming from the last-level cache
  double cache_bytes = 16 << 20;        // of the last-level cache
  double near_cache_bytes = 512 << 10;  // of a core's second-level cache
  double simple_gops = 10;              // elementwise operations such as add, through registers
  double special_gops = 1;              // exp, erf, tanh
  double dispatch_us = 3;               // starting one kernel on all threads
  bool has_bf16 = false;                // the processor multiplies bf16
  double tile_gflops = 0;               // bf16 products by tile instructions (AMX); 0: has none
  double byte_gflops = 150;             // products in eight bits
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
  /// Weights in a form of its own.
  virtual std::vector<Tensor> constants() const { return {}; }
};

using Implementation = ::tensor::Implementation<std::unique_ptr<Kernel>>;
using Family = ::tensor::Family<Machine, std::unique_ptr<Kernel>>;
using Families = ::tensor::Families<Machine, std::unique_ptr<Kernel>>;

/// The table in families.cpp; the last family, reference, runs any single operator.
std::span<const Family> cpu_families();

// ---- Threads: all of them are too many for a small group.

/// The machine as if it had so many threads of those it has.
Machine with_threads(const Machine& machine, int threads);
/// The knob of schedules that say how many threads run a kernel: 1, 2, 4, ... or all.
Sketch::Knob threads_knob(const Machine& machine);
std::optional<int> threads_of(const Schedule& schedule);

/// Both are about one problem and any number of the machine's threads: how many microseconds the
/// kernel takes, and the kernel.
using Estimate = std::function<double(const Machine&)>;
using Build = std::function<std::unique_ptr<Kernel>(const Isolated&, const Machine&)>;

/// A family's answer. Without a space of its own, what may be tried is on how many threads the
/// loops run ("loops threads=4").
Implementation implementation(const Isolated& alone, const Machine& machine,
                              const Estimate& microseconds, const Build& build,
                              std::function<Space()> space = nullptr);

}  // namespace tensor::cpu

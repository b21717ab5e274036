// CpuEngine: a program's steps as kernels on this machine's cores.
#pragma once

#include <optional>

#include "src/core/pool.h"
#include "src/kernels/cpu/kernel.h"
#include "src/runtime/program.h"
#include "src/trace/guards.h"

namespace tensor::detail {

struct CpuKernels : Kernels {
  std::vector<std::unique_ptr<cpu::Kernel>> groups;
  std::string description(std::size_t group) const override { return groups[group]->description(); }
};

class CpuEngine : public Engine {
 public:
  CpuEngine(const Program& program, CpuKernels kernels, int threads, int spin_us);

  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::stop_token& stop) const override;
  std::vector<std::vector<double>> time(const std::vector<Tensor>& inputs,
                                        int repeats) const override;
  std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const override;
  void run_step(std::size_t step, std::span<std::byte* const> operands) const override;
  void watch(const std::vector<Tensor>& inputs, const Show& show) const override;
  const std::vector<Step>& steps() const override { return steps_; }
  std::vector<Tensor> constants() const override;

  /// Replaces a step's kernel by what `with` makes of it; lets tests of verify plant a wrong one.
  void replace(
      std::size_t step,
      const std::function<std::unique_ptr<cpu::Kernel>(std::unique_ptr<cpu::Kernel>)>& with);

 private:
  struct Bound {
    std::unique_ptr<cpu::Kernel> kernel;
    std::vector<Location> operands;
    std::vector<std::pair<Location, bool>> guards;  // bools, and what they must be
  };
  // The memory of one call at a time, kept for the next one.
  struct Context {
    std::byte* arena = nullptr;                    // intermediate values, then the kernels' scratch
    std::vector<std::shared_ptr<Storage>> packed;  // of inputs that were not contiguous some time
    std::vector<std::byte*> inputs, outputs;       // their first elements
    std::vector<std::byte*> operands;              // of the step that runs
  };
  using Observer = std::function<void(std::size_t step, bool begins, const Context& context)>;

  void add_group(std::size_t index, std::unique_ptr<cpu::Kernel> kernel, const Guards& guards);
  void add_copy(std::size_t output);
  void add(int group, std::unique_ptr<cpu::Kernel> kernel, std::vector<Location> operands);
  std::int64_t arena_bytes() const;
  std::unique_ptr<Context> new_context() const;
  std::byte* address(const Context& context, const Location& location) const;
  bool is_needed(const Context& context, const Bound& step) const;
  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::stop_token& stop, const Observer& observe) const;

  const Program& program_;
  Arenas& arenas_;
  int threads_, spin_us_;
  std::vector<Step> steps_;
  std::vector<Bound> bound_;                 // by step
  std::vector<const std::byte*> constants_;  // of the graph's nodes, which keep them alive
  std::int64_t scratch_bytes_ = 0;
  std::optional<Arenas::Need> need_;
  mutable Pool<Context> contexts_;
};

}  // namespace tensor::detail

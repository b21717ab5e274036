// CudaEngine: a program's steps as kernels on a GPU, recorded into one CUDA graph that also copies
// inputs there and outputs back.
#pragma once

#include <deque>
#include <optional>

#include "src/core/pool.h"
#include "src/kernels/cuda/family.h"
#include "src/kernels/cuda/graph.h"
#include "src/kernels/cuda/load.h"
#include "src/runtime/program.h"

namespace tensor::detail {

class CudaEngine : public Engine {
 public:
  CudaEngine(const Program& program, cuda::Device& device, const cuda::Machine& machine);

  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const override;
  std::vector<std::vector<double>> time(const std::vector<Tensor>& inputs,
                                        int repeats) const override;
  std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const override;
  void run_step(std::size_t step, std::span<std::byte* const> operands) const override;
  const std::vector<Step>& steps() const override { return steps_; }

 private:
  struct Bound {
    const Group* group;
    cuda::Lowered lowered;
    std::vector<std::shared_ptr<cuda::Kernel>> kernels;  // of its calls
    std::vector<std::int64_t> packed;                    // offsets in constants_
  };
  // A block of host memory beside one of the device.
  struct Mirror {
    std::int64_t device = 0, host = 0, bytes = 0;  // offsets in the context's memory
  };
  // What a step on the host does in one context.
  struct HostCall {
    const std::function<void(std::span<std::byte* const>)>* run = nullptr;
    std::vector<std::byte*> operands;
    std::string* error = nullptr;  // what it threw
  };
  // The memory of one call at a time, and its graphs, made when first used.
  struct Context {
    explicit Context(const CudaEngine& engine);
    cuda::Buffer memory;
    cuda::PinnedBuffer host;
    cuda::Stream stream;
    std::deque<HostCall> host_calls;
    std::string error;  // of a host call
    std::optional<cuda::LaunchGraph> whole, kernels;
  };

  void lower(const cuda::Machine& machine);
  void place();
  void upload_constants();
  std::int64_t root_bytes(ValueId id) const;
  Tensor constant(ValueId id) const;

  cuda::Address address(const Context& context, const Location& location) const;
  cuda::Resolve resolve_in(const Context& context, const Bound& step) const;
  void record_steps(Context& context, cuda::Stream& stream) const;
  void record_on_host(Context& context, cuda::Stream& stream, const Bound& step) const;
  void record_whole(Context& context, cuda::Stream& stream) const;
  void fill_inputs(Context& context, const std::vector<Tensor>& inputs) const;
  void take_outputs(const Context& context, std::vector<Tensor>& outputs) const;
  void finish(Context& context) const;

  const Program& program_;
  cuda::Device& device_;
  Wiring wires_;
  std::vector<Step> steps_;
  std::vector<Bound> bound_;  // by step
  std::vector<Mirror> inputs_, outputs_;
  std::vector<std::int64_t> constant_at_;  // by Location::index, -1 where no kernel reads it
  std::int64_t arena_at_ = 0, scratch_at_ = 0, memory_bytes_ = 0, host_bytes_ = 0;
  std::int64_t host_call_at_ = 0;  // of the operands of host calls
  std::int64_t constant_bytes_ = 0;
  std::optional<cuda::Buffer> constants_;
  mutable Pool<Context> contexts_;
};

}  // namespace tensor::detail

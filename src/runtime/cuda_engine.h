// CudaEngine: a program's steps as kernels on a GPU, recorded into one CUDA graph that also copies
// what the caller has on the host there and back. What the caller has on the GPU is read and
// written where it lies.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <list>
#include <optional>

#include "src/core/pool.h"
#include "src/kernels/cuda/driver/graph.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/program.h"
#include "src/runtime/reach.h"

namespace tensor::detail {

struct CudaKernels : Kernels {
  std::vector<cuda::Lowered> groups;
  std::string description(std::size_t group) const override { return groups[group].description; }
  std::vector<Source> sources(std::size_t group) const override;
};

class CudaEngine : public Engine {
 public:
  CudaEngine(const Program& program, cuda::Device& device, CudaKernels kernels);

  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const override;
  std::vector<std::vector<double>> time(const std::vector<Tensor>& inputs,
                                        int repeats) const override;
  std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const override;
  void run_step(std::size_t step, std::span<std::byte* const> operands) const override;
  const std::vector<Step>& steps() const override { return steps_; }
  DeviceMemory memory() const override;

 private:
  struct Bound {
    const Group* group;
    std::string name;  // in the model's words: "encoder.layer.3: matmul, add"
    cuda::Lowered lowered;
    std::vector<std::shared_ptr<cuda::Kernel>> kernels;  // of its calls
    std::vector<std::int64_t> packed;                    // offsets in constants_
  };
  // An operand of the program that the caller has on the host: its memory on the device, and what
  // copies go through.
  struct Mirror {
    std::shared_ptr<Storage> device;  // null for outputs that are views
    cuda::PinnedBuffer host;
  };
  // What a step on the host does in one context.
  struct HostCall {
    const std::function<void(std::span<std::byte* const>)>* run = nullptr;
    std::vector<std::byte*> operands;
    std::exception_ptr* error = nullptr;  // what it threw
  };
  // All of the program's work for operands at certain addresses.
  struct Recorded {
    std::vector<cuda::Address> at;
    std::deque<HostCall> host_calls;
    std::optional<cuda::LaunchGraph> graph;
  };
  // The memory of one call at a time, and its graphs. Operands are the inputs, then the outputs.
  struct Context {
    std::shared_ptr<Storage> memory;              // the arena, then scratch
    std::vector<std::optional<Mirror>> mirrors;   // of operands that were on the host once
    std::optional<cuda::PinnedBuffer> call_host;  // of the operands of host calls
    std::vector<Tensor> operands;                 // of the call: as kernels take them
    std::vector<cuda::Address> at;                // where they lie, 0: in their mirror
    std::list<Recorded> recorded;                 // the latest first
    std::exception_ptr error;                     // of a host call
  };
  using Lease = Pool<Context>::Lease;

  // cuda_engine.cpp: building and recording.
  void load(CudaKernels kernels);
  void place();
  void upload_constants();
  void name_steps();
  std::int64_t root_bytes(ValueId id) const;
  Reach reach_in_memory(ValueId id) const;
  Tensor constant(ValueId id) const;
  std::unique_ptr<Context> new_context() const;
  void mirror(Context& context, std::size_t operand, bool on_device) const;

  cuda::Address operand_address(const Context& context, std::size_t operand) const;
  cuda::Address address(const Context& context, const Location& location) const;
  cuda::Address lowest(const Context& context, ValueId id) const;  // of its elements
  cuda::Resolve resolve_in(const Context& context, const Bound& step) const;
  void record_steps(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls) const;
  void record_on_host(Context& context, cuda::Stream& stream, const Bound& step,
                      std::deque<HostCall>& calls) const;
  void record_whole(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls) const;

  // cuda_run.cpp: calls.
  ValueId root_of_output(std::size_t output) const;
  bool is_downloaded(const Context& context, std::size_t output) const;
  const Layout& operand_layout(std::size_t operand) const;
  bool fits(const Tensor& x, std::size_t operand) const;
  void bind(Context& context, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs) const;
  void start(Context& context, cuda::Stream& stream) const;
  void finish(Context& context, cuda::Stream& stream) const;
  void take_output(Context& context, std::size_t output, const Tensor& to) const;
  Tensor value_of_output(const Context& context, std::size_t output) const;
  template <class Work>
  void with_context(const Work& work) const;

  const Program& program_;
  cuda::Device& device_;
  Wiring wires_;
  std::vector<Step> steps_;
  std::string name_;                         // for profilers
  std::vector<Bound> bound_;                 // by step
  std::vector<std::int64_t> operand_bytes_;  // of the inputs, then the outputs
  std::vector<std::int64_t> constant_at_;    // by Location::index, -1 where no kernel reads it
  std::size_t launches_ = 0;                 // of all steps
  std::int64_t scratch_at_ = 0, memory_bytes_ = 0, call_host_bytes_ = 0;
  std::shared_ptr<Storage> constants_;
  std::int64_t constant_bytes_ = 0;
  mutable std::atomic<std::int64_t> contexts_made_ = 0, mirror_bytes_ = 0;
  mutable Pool<Context> contexts_;
};

}  // namespace tensor::detail

// CudaEngine: a program's steps as kernels on a GPU, recorded into one CUDA graph that also copies
// what the caller has on the host there and back. What the caller has on the GPU is read and
// written where it lies.
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "src/core/pool.h"
#include "src/kernels/cuda/driver/communicator.h"
#include "src/kernels/cuda/driver/graph.h"
#include "src/kernels/cuda/driver/load.h"
#include "src/kernels/cuda/family.h"
#include "src/runtime/program.h"
#include "src/runtime/reach.h"
#include "src/runtime/recordings.h"
#include "src/trace/guards.h"

namespace tensor::detail {

struct CudaKernels : Kernels {
  std::vector<cuda::Lowered> groups;
  std::string description(std::size_t group) const override { return groups[group].description; }
  std::vector<Source> sources(std::size_t group) const override;
};

class CudaEngine : public Engine {
 public:
  CudaEngine(const Program& program, cuda::Device& device, CudaKernels kernels);
  ~CudaEngine() override;

  void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::stop_token& stop) const override;
  void enqueue(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
               void* stream) const override;
  std::vector<std::vector<double>> time(const std::vector<Tensor>& inputs,
                                        int repeats) const override;
  std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const override;
  void run_step(std::size_t step, std::span<std::byte* const> operands) const override;
  const std::vector<Step>& steps() const override { return steps_; }
  std::vector<Tensor> constants() const override { return constants_; }

 private:
  struct Bound {
    const Group* group;
    std::string name;  // in the model's words: "encoder.layer.3: matmul, add"
    cuda::Lowered lowered;
    std::vector<std::shared_ptr<cuda::Kernel>> kernels;  // of its calls
    std::vector<Tensor> packed;                          // on the device
    Guards guards;                                       // none where the driver has no conditions
  };
  static constexpr std::size_t kFewLaunches = 2;  // take no longer one by one than as a graph

  // In place of addresses: in its mirror, which is a host operand's or one of the device; or a
  // copied output that the caller has on the device.
  static constexpr cuda::Address kMirrorOfHost = 0, kNotDownloaded = 1, kMirrorOfDevice = 2;

  // Memory that a call has while it lasts.
  struct Block {
    std::shared_ptr<Storage> storage;
    const std::byte* last = nullptr;  // where the previous one was
    std::byte* data() const { return storage ? storage->data : nullptr; }
  };
  // What one call at a time needs. Operands are the inputs, then the outputs.
  struct Context {
    explicit Context(Recordings& graphs) : recordings(graphs) {}
    ~Context() { recordings.forget(this); }
    /// Nothing keeps the caller's tensors and the call's memory any longer.
    void let_go() {
      std::fill(operands.begin(), operands.end(), Tensor());
      for (Block* block : {&values, &mirrors, &pinned}) block->storage = nullptr;
    }

    Recordings& recordings;
    Block values;                   // intermediate values, then scratch
    Block mirrors;                  // of the operands that are on the host, if any is
    Block pinned;                   // copies of these, then what host calls take
    std::vector<Tensor> operands;   // of the call: as kernels take them
    std::vector<cuda::Address> at;  // where they lie, or one of those below
    std::exception_ptr error;       // of a host call
  };
  // What calls on one stream have in turn.
  struct Held {
    ~Held() { context->let_go(); }
    Pool<Context>::Lease context;
    Arenas::Lease values;
    std::optional<Arenas::Lease> mirrors;  // once operands came that no graph was recorded for
  };
  // A call that was handed to a stream of the caller's.
  struct InFlight {
    InFlight(cuda::Device& device, cuda::StreamHandle* of) : stream(of), done(device) {}
    cuda::StreamHandle* stream;
    cuda::Event done;
    std::shared_ptr<Recorded> recorded;
    std::vector<Tensor> operands;
    std::unique_ptr<Held> held;  // of the stream's latest call
  };

  // cuda_engine.cpp: building and recording.
  void load(CudaKernels kernels);
  void place();
  void upload_constants();
  std::vector<Tensor> packed_from(const Bound& step, const cuda::Lowered::Packed& packed) const;
  void name_steps();
  std::int64_t root_bytes(ValueId id) const;
  Reach reach_in_memory(ValueId id) const;
  Tensor constant(ValueId id) const;
  std::unique_ptr<Context> new_context() const;

  cuda::Address operand_address(const Context& context, std::size_t operand) const;
  cuda::Address address(const Context& context, const Location& location) const;
  cuda::Address lowest(const Context& context, ValueId id) const;  // of its elements
  cuda::Resolve resolve_in(const Context& context, const Bound& step) const;
  void record_steps(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls) const;
  void record_range(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls,
                    std::size_t begin, std::size_t end, std::size_t depth) const;
  void record_on_host(Context& context, cuda::Stream& stream, const Bound& step,
                      std::deque<HostCall>& calls) const;
  void record_uploads(Context& context, cuda::Stream& stream) const;
  void record_downloads(Context& context, cuda::Stream& stream) const;
  void record_sum(Context& context, cuda::Stream& stream, const Bound& step) const;
  void record_whole(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls) const;

  // cuda_enqueue.cpp: calls on streams of the caller's.
  bool only_starts_kernels(const std::vector<Tensor>& inputs,
                           const std::vector<Tensor>& outputs) const;
  std::unique_ptr<Held> held_for(cuda::StreamHandle* stream) const;
  std::shared_ptr<Recorded> start_on(Held& held, cuda::Stream& stream) const;
  std::list<InFlight> take_finished() const;

  // cuda_run.cpp: calls.
  ValueId root_of_output(std::size_t output) const;
  bool is_downloaded(const Context& context, std::size_t output) const;
  const Layout& operand_layout(std::size_t operand) const;
  bool fits(const Tensor& x, std::size_t operand) const;
  void bind(Context& context, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& outputs) const;
  Recordings::Found recording_for(Context& context) const;
  bool is_started_one_by_one(const Context& context, const Recordings::Found& found) const;
  static void settle(cuda::Stream& stream) noexcept;
  std::shared_ptr<Recorded> start(Context& context, cuda::Stream& stream,
                                  const Recordings::Found& found) const;
  void finish(Context& context, cuda::Stream& stream) const;
  void run_until(const std::stop_token& stop, Context& context, cuda::Stream& stream) const;
  void take_output(Context& context, std::size_t output, const Tensor& to) const;
  Tensor value_of_output(const Context& context, std::size_t output) const;
  Arenas::Lease lend(Arenas& arenas, std::int64_t bytes, Block& to) const;
  template <class Work>
  void with_context(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                    const Work& work) const;

  const Program& program_;
  CallMemory& memory_;
  cuda::Device& device_;
  Wiring wires_;
  std::vector<Step> steps_;
  std::string name_;                         // for profilers
  std::vector<Bound> bound_;                 // by step
  std::vector<std::int64_t> operand_bytes_;  // of the inputs, then the outputs
  std::vector<std::int64_t> mirror_at_;      // of the same
  std::vector<Tensor> read_;                 // by Location::index, undefined where no kernel does
  std::size_t launches_ = 0;                 // of all steps
  std::int64_t scratch_at_ = 0, values_bytes_ = 0, mirrors_bytes_ = 0, call_host_bytes_ = 0;
  std::vector<Tensor> constants_;               // on the device
  std::optional<cuda::Conditions> conditions_;  // where a step has guards
  std::list<Arenas::Need> needs_;
  mutable Pool<Context> contexts_;
  mutable std::mutex in_flight_mutex_;
  mutable std::list<InFlight> in_flight_;  // the latest last
};

}  // namespace tensor::detail

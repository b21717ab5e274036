// Program: what an Executable runs. A planned graph, where its values live, and the engine that
// runs its steps on some device.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "src/runtime/common.h"
#include "src/runtime/parts.h"
#include "src/runtime/placement.h"
#include "src/runtime/shared_constants.h"
#include "src/runtime/target.h"
#include "tensor/executable.h"
#include "tensor/io.h"

namespace tensor::detail {

/// What one step is, for reports.
struct Step {
  int group = -1;           // in the plan; -1 for the copy of an output
  std::string description;  // of its kernel
};

/// Runs the steps of one program. Immutable: any number of threads may run it at a time.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Tensors of the program's types, behind the outputs one on the host for each of the graph's
  /// checks; the outputs are contiguous, or as fresh_outputs makes them, and share no memory.
  /// Allocates nothing once as many calls at a time were made before, but for kernels of the
  /// reference family and what libraries do inside. Cancelled where `stop` was requested before its
  /// last step began.
  virtual void run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                   const std::stop_token& stop) const = 0;
  /// Hands it to a stream of the program's GPU and returns, where nothing else is to be done
  /// (tensor/interop.h).
  virtual void enqueue(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                       void* stream) const {
    (void)inputs, (void)outputs, (void)stream;
    internal_error("enqueue", "this engine has no streams");
  }
  /// Microseconds of every step in each of `repeats` runs after a first one: times[repeat][step].
  virtual std::vector<std::vector<double>> time(const std::vector<Tensor>& inputs,
                                                int repeats) const = 0;
  /// Microseconds of every one of `repeats` whole runs after a first one, without copies to and
  /// from a device.
  virtual std::vector<double> time_whole(const std::vector<Tensor>& inputs, int repeats) const = 0;
  /// One step of a group, on operands in the host's memory that lie as the program's layouts say.
  virtual void run_step(std::size_t step, std::span<std::byte* const> operands) const = 0;
  /// Runs once, and shows the operands of each step before it runs. An engine whose memory is not
  /// the host's shows none.
  using Show = std::function<void(std::size_t step, std::span<std::byte* const> operands)>;
  virtual void watch(const std::vector<Tensor>& inputs, const Show& show) const {
    (void)inputs, (void)show;
  }
  virtual const std::vector<Step>& steps() const = 0;
  /// The constants that it reads, in the forms in which it does, on its device.
  virtual std::vector<Tensor> constants() const { return {}; }
};

struct Program {
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (common) common->remove(*this);
  }

  std::shared_ptr<Common> common;  // outlives the engine
  LaidOutGraph laid;
  FusionPlan plan;
  Target target;
  /// What its options ask for, "bf16 with narrow residuals" for one: a plan holds programs of one.
  std::string computes;
  Placement placement;
  std::vector<TensorType> inputs, outputs;  // without the flags of the graph's checks
  std::unique_ptr<Engine> engine;
  SharedConstants shared;  // none on a GPU, which has copies
  /// Of several devices: then it has nothing else but `common`, `computes`, `inputs` and `outputs`.
  std::unique_ptr<const Parts> parts;
};

/// Decides where every value lives and binds the kernels to it. Without `common` the program shares
/// with nobody; what its graph derived is forgotten.
std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan,
                                    std::unique_ptr<Kernels> kernels, Target target,
                                    std::shared_ptr<Common> common = nullptr,
                                    std::string computes = "f32");
/// This one makes the plan's kernels first.
std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan, Target target);

/// UserError on inputs of other types, on another device, or of another number than the program's.
void check_inputs(const Program& program, const std::vector<Tensor>& inputs);

/// Behind the outputs, on the host, places for the flags of its graph's checks.
std::vector<Tensor> with_checks(const Program& program, std::vector<Tensor> outputs);
/// Runs its engine. UserError if a check of its graph found something.
void run_checked(const Program& program, const std::vector<Tensor>& inputs,
                 std::vector<Tensor>& outputs, const std::stop_token& stop = {});
/// Cancelled if it was requested.
void check_goes_on(const std::stop_token& stop);

/// Checks the tensors against the program's types and device, and runs it.
void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, const std::stop_token& stop = {});
/// The same with fresh outputs.
std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs);
/// The same as tensor/interop.h has them, for a stream.
void enqueue(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, void* stream);
std::vector<Tensor> enqueue(const Program& program, const std::vector<Tensor>& inputs,
                            void* stream);

/// Uninitialised tensors of the program's output types: on a GPU lying as kernels write them,
/// otherwise row-major.
std::vector<Tensor> outputs_on(const Program& program, const Device& device);
/// The same on the program's device where one of the inputs is, otherwise on the host.
std::vector<Tensor> fresh_outputs(const Program& program, const std::vector<Tensor>& inputs);

/// The memory of a contiguous tensor in the order in which kernels write an output.
Tensor as_laid(const Program& program, std::size_t output, const Tensor& dense);

}  // namespace tensor::detail

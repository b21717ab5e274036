// link: from a fusion plan to a program on its device; execute: one call of it.
#include <algorithm>
#include <functional>

#include "src/core/storage.h"
#include "src/runtime/program.h"
#include "src/runtime/reach.h"
#include "tensor/creation.h"

namespace tensor::detail {
namespace {

void check_types(std::string_view what, const std::vector<Tensor>& got,
                 const std::vector<TensorType>& need) {
  if (got.size() != need.size())
    fail("run", "got ", got.size(), ' ', what, "s, need ", need.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    require_values(got[i], "run",
                   "an Executable is a compiled function inside the one that is traced. Call what "
                   "compile(function) returns, which is traced along, or the function itself");
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(got[i].type() == need[i]))
      fail("run", what, ' ', i, " is ", got[i].type(), ", this executable was compiled for ",
           need[i], ": compile it again for other types");
}

// A program on a GPU takes tensors of the host too, one on the CPU takes those alone.
void check_device(std::string_view what, const std::vector<Tensor>& tensors, const Device& device) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const Device there = tensors[i].device(); there.is_cuda() && !(there == device))
      fail("run", what, ' ', i, " lies on ", there, ", this executable runs on ", device,
           ": move it with to(\"", device, "\"), or compile for ", there);
}

// From the first to the last byte of a tensor, whatever lies between its elements.
struct Extent {
  const std::byte *begin = nullptr, *end = nullptr;
  Device device;

  explicit Extent(const Tensor& x) {
    const TensorImpl& t = placed(x);
    const Reach reach = reach_of(t.type.shape, t.strides, t.type.dtype);
    device = t.storage->device;
    begin = t.first() + reach.first;
    end = begin + reach.bytes;
  }
  bool meets(const Extent& other) const {
    constexpr std::less<const std::byte*> before;
    return device == other.device && before(begin, other.end) && before(other.begin, end);
  }
};

// The types are the program's; a program of several devices takes what each can reach.
void check(const Program& program, std::string_view what, const std::vector<Tensor>& got,
           const std::vector<TensorType>& need) {
  check_types(what, got, need);
  if (!program.parts) return check_device(what, got, program.target.device);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (const Device there = got[i].device(); there.is_cuda())
      fail("run", what, ' ', i, " lies on ", there, ", this executable ", program.parts->does(),
           ", need it on the host: bring it with to(\"cpu\")");
}

// Kernels write outputs while inputs and other outputs are still read.
void check_apart(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Extent extent(outputs[i]);
    const auto check = [&](std::string_view what, std::size_t index, const Tensor& other) {
      if (extent.meets(Extent(other)))
        fail("run", "output ", i, " lies in the memory of ", what, ' ', index,
             ", need memory of its own: use empty(shape, dtype)");
    };
    for (std::size_t k = 0; k < inputs.size(); ++k) check("input", k, inputs[k]);
    for (std::size_t k = 0; k < i; ++k) check("output", k, outputs[k]);
  }
}

void check_outputs(const Program& program, const std::vector<Tensor>& inputs,
                   const std::vector<Tensor>& outputs) {
  check(program, "output", outputs, program.outputs);
  for (const Tensor& x : outputs)
    if (!x.is_contiguous() || x.is_read_only())
      fail("run", "outputs must be contiguous and writable: use empty(shape, dtype)");
  check_apart(inputs, outputs);
}

// Streams are of the one GPU that the program is for.
void check_has_streams(const Program& program) {
  if (program.parts)
    fail("enqueue", "this executable ", program.parts->does(), ", need one for a single GPU");
  if (!program.target.device.is_cuda())
    fail("enqueue",
         "this executable is for the CPU, need one for a GPU: call it, or compile with "
         "{.device = \"cuda\"}");
}

// Calls `run(all)` with the outputs and the flags of the checks.
template <class Run>
void checked(const Program& program, std::vector<Tensor>& outputs, const Run& run) {
  const std::vector<std::string>& checks = program.laid.graph.checks();
  if (checks.empty()) return run(outputs);
  std::vector<Tensor> all = with_checks(program, outputs);
  run(all);
  for (std::size_t i = 0; i < checks.size(); ++i)
    if (all[outputs.size() + i].item<bool>()) throw UserError(checks[i]);
}

void start(const Program& program, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
           const std::stop_token& stop = {}) {
  program.parts ? program.parts->run(inputs, outputs, stop)
                : run_checked(program, inputs, outputs, stop);
}

// The flags are on the host: the call waits for them.
void enqueue_checked(const Program& program, const std::vector<Tensor>& inputs,
                     std::vector<Tensor>& outputs, void* stream) {
  checked(program, outputs,
          [&](std::vector<Tensor>& all) { program.engine->enqueue(inputs, all, stream); });
}

}  // namespace

std::vector<Tensor> with_checks(const Program& program, std::vector<Tensor> outputs) {
  for (std::size_t i = 0; i < program.laid.graph.checks().size(); ++i)
    outputs.push_back(empty({}, boolean));
  return outputs;
}

void run_checked(const Program& program, const std::vector<Tensor>& inputs,
                 std::vector<Tensor>& outputs, const std::stop_token& stop) {
  checked(program, outputs,
          [&](std::vector<Tensor>& all) { program.engine->run(inputs, all, stop); });
}

void check_goes_on(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Cancelled("run: stopped, as its stop_token asked");
}

void check_inputs(const Program& program, const std::vector<Tensor>& inputs) {
  check(program, "input", inputs, program.inputs);
}

std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan, Target target) {
  auto kernels = target.lower(laid, plan);
  return link(std::move(laid), std::move(plan), std::move(kernels), std::move(target));
}

std::shared_ptr<const Program> link(LaidOutGraph laid, FusionPlan plan,
                                    std::unique_ptr<Kernels> kernels, Target target,
                                    std::shared_ptr<Common> common, std::string computes) {
  const auto program = std::make_shared<Program>();
  program->common = common ? common : std::make_shared<Common>(laid.graph.derived());
  program->laid = std::move(laid);
  program->plan = std::move(plan);
  program->target = std::move(target);
  program->computes = std::move(computes);
  program->placement = place_values(program->laid, program->plan, program->target.device.is_cuda());
  const Graph& graph = program->laid.graph;
  for (const ValueId id : graph.inputs()) program->inputs.push_back(graph.type(id));
  for (const ValueId id : graph.outputs()) program->outputs.push_back(graph.type(id));
  program->outputs.resize(graph.outputs().size() - graph.checks().size());
  program->engine = program->target.build(*program, std::move(kernels));
  program->target.offers->forget();
  if (!program->target.device.is_cuda()) program->shared.watch(graph);
  if (program->engine) program->common->add(*program);
  // What nobody shares needs not be known any longer.
  DerivedConstants& derived = *program->common->derived();
  common ? derived.tidy() : derived.forget();
  program->common->contents().tidy();
  return program;
}

void execute(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, const std::stop_token& stop) {
  check_inputs(program, inputs);
  check_outputs(program, inputs, outputs);
  program.shared.check();
  for (const Tensor& x : outputs) about_to_write(*placed(x).storage);
  start(program, inputs, outputs, stop);
}

std::vector<Tensor> execute(const Program& program, const std::vector<Tensor>& inputs) {
  check_inputs(program, inputs);
  program.shared.check();
  std::vector<Tensor> outputs = fresh_outputs(program, inputs);
  start(program, inputs, outputs);
  return outputs;
}

void enqueue(const Program& program, const std::vector<Tensor>& inputs,
             std::vector<Tensor>& outputs, void* stream) {
  check_has_streams(program);
  check_inputs(program, inputs);
  check_outputs(program, inputs, outputs);
  program.shared.check();
  for (const Tensor& x : outputs) about_to_write(*placed(x).storage);
  enqueue_checked(program, inputs, outputs, stream);
}

std::vector<Tensor> enqueue(const Program& program, const std::vector<Tensor>& inputs,
                            void* stream) {
  check_has_streams(program);
  check_inputs(program, inputs);
  program.shared.check();
  std::vector<Tensor> outputs = outputs_on(program, program.target.device);
  enqueue_checked(program, inputs, outputs, stream);
  return outputs;
}

std::vector<Tensor> fresh_outputs(const Program& program, const std::vector<Tensor>& inputs) {
  const bool on_device = std::any_of(inputs.begin(), inputs.end(),
                                     [](const Tensor& x) { return x.device().is_cuda(); });
  return outputs_on(program, on_device ? program.target.device : Device());
}

std::vector<Tensor> outputs_on(const Program& program, const Device& device) {
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    const TensorType& type = program.outputs[i];
    const Tensor dense = empty(type.shape, type.dtype, device);
    outputs.push_back(device.is_cuda() ? as_laid(program, i, dense) : dense);
  }
  return outputs;
}

Tensor as_laid(const Program& program, std::size_t output, const Tensor& dense) {
  const ValueId id = program.laid.graph.outputs()[output];
  if (program.placement.is_copied(output)) return dense;
  TensorImpl laid = placed(dense);
  laid.strides = program.laid.layouts[at(id)].strides;
  return make_tensor(std::move(laid));
}

}  // namespace tensor::detail

#include "src/runtime/cpu_engine.h"

#include <algorithm>
#include <chrono>

#include "src/core/parallel.h"
#include "src/core/storage.h"
#include "src/kernels/cpu/copy/copy.h"
#include "src/kernels/host/strided_copy.h"

namespace tensor::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Kernels are compiled for contiguous inputs.
std::byte* contiguous(const Tensor& x, std::shared_ptr<Storage>& packed, int threads) {
  const TensorImpl& t = stored(x);
  if (x.is_contiguous()) return t.first();
  const std::int64_t item = item_size(t.type.dtype);
  if (!packed) packed = allocate(x.size() * item);
  cpu::StridedCopy(t.type.shape, t.strides, row_major(t.type.shape), item)
      .run(t.first(), packed->data, threads);
  return packed->data;
}

}  // namespace

CpuEngine::CpuEngine(const Program& program, CpuKernels kernels, int threads, int spin_us)
    : program_(program),
      arenas_(program.common->memory({}).values),
      threads_(threads),
      spin_us_(spin_us) {
  for (const ValueId id : program.placement.constants)
    constants_.push_back(stored(program.laid.graph[id].constant).first());
  const std::vector<Guards> guards = guards_of(program.laid.graph, program.plan);
  for (std::size_t g = 0; g < kernels.groups.size(); ++g)
    add_group(g, std::move(kernels.groups[g]), guards[g]);
  for (const std::size_t i : program.placement.copied_outputs) add_copy(i);
  need_.emplace(arenas_, arena_bytes());
}

void CpuEngine::add_group(std::size_t index, std::unique_ptr<cpu::Kernel> kernel,
                          const Guards& guards) {
  const Group& group = program_.plan.groups[index];
  std::vector<Location> operands;
  for (const ValueId id : group.reads) operands.push_back(program_.placement.of(id));
  for (const ValueId id : group.writes) operands.push_back(program_.placement.of(id));
  add(static_cast<int>(index), std::move(kernel), std::move(operands));
  for (const Guard& guard : guards)
    bound_.back().guards.emplace_back(program_.placement.of(guard.condition), guard.value);
}

void CpuEngine::add_copy(std::size_t output) {
  const Graph& graph = program_.laid.graph;
  const ValueId id = graph.outputs()[output];
  auto kernel = cpu::copy_kernel(program_.laid.layouts[at(id)], graph.type(id).dtype, threads_);
  add(-1, std::move(kernel), {program_.placement.of(id), {Place::output, output, 0}});
}

void CpuEngine::add(int group, std::unique_ptr<cpu::Kernel> kernel,
                    std::vector<Location> operands) {
  scratch_bytes_ = std::max(scratch_bytes_, static_cast<std::int64_t>(kernel->scratch_bytes()));
  steps_.push_back({group, kernel->description()});
  bound_.push_back({std::move(kernel), std::move(operands), {}});
}

void CpuEngine::replace(
    std::size_t step,
    const std::function<std::unique_ptr<cpu::Kernel>(std::unique_ptr<cpu::Kernel>)>& with) {
  bound_[step].kernel = with(std::move(bound_[step].kernel));
  steps_[step].description = bound_[step].kernel->description();
}

std::int64_t CpuEngine::arena_bytes() const {
  return program_.placement.memory.bytes + scratch_bytes_;
}

std::vector<Tensor> CpuEngine::constants() const {
  std::vector<Tensor> result;
  for (const ValueId id : program_.placement.constants)
    result.push_back(program_.laid.graph[id].constant);
  for (const Bound& step : bound_)
    for (const Tensor& x : step.kernel->constants()) result.push_back(x);
  return result;
}

std::unique_ptr<CpuEngine::Context> CpuEngine::new_context() const {
  auto context = std::make_unique<Context>();
  context->packed.resize(program_.inputs.size());
  context->inputs.resize(program_.inputs.size());
  context->outputs.resize(program_.laid.graph.outputs().size());
  std::size_t most = 0;
  for (const Bound& step : bound_) most = std::max(most, step.operands.size());
  context->operands.resize(most);
  return context;
}

std::byte* CpuEngine::address(const Context& context, const Location& location) const {
  switch (location.place) {
    case Place::arena:
      return context.arena + location.offset;
    case Place::input:
      return context.inputs[location.index] + location.offset;
    case Place::output:
      return context.outputs[location.index] + location.offset;
    case Place::constant:
      return const_cast<std::byte*>(constants_[location.index]) + location.offset;
  }
  return nullptr;
}

bool CpuEngine::is_needed(const Context& context, const Bound& step) const {
  return std::all_of(step.guards.begin(), step.guards.end(), [&](const auto& guard) {
    return *reinterpret_cast<const bool*>(address(context, guard.first)) == guard.second;
  });
}

void CpuEngine::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                    const std::stop_token& stop, const Observer& observe) const {
  const cpu::LoopScope loops(spin_us_, threads_);
  const auto context = contexts_.take([&] { return new_context(); });
  const Arenas::Lease arena = arenas_.take(arena_bytes(), context->arena);
  context->arena = arena.block()->data;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    context->inputs[i] = contiguous(inputs[i], context->packed[i], threads_);
  for (std::size_t i = 0; i < outputs.size(); ++i) context->outputs[i] = stored(outputs[i]).first();
  std::byte* const scratch = context->arena + program_.placement.memory.bytes;
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    check_goes_on(stop);
    const Bound& step = bound_[i];
    for (std::size_t k = 0; k < step.operands.size(); ++k)
      context->operands[k] = address(*context, step.operands[k]);
    if (observe) observe(i, true, *context);
    if (is_needed(*context, step))
      step.kernel->run({context->operands.data(), step.operands.size()}, scratch);
    if (observe) observe(i, false, *context);
  }
}

void CpuEngine::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                    const std::stop_token& stop) const {
  run(inputs, outputs, stop, nullptr);
}

std::vector<double> CpuEngine::time_whole(const std::vector<Tensor>& inputs, int repeats) const {
  std::vector<Tensor> outputs = fresh_outputs(program_, {});
  run(inputs, outputs, {});
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const Clock::time_point start = Clock::now();
    run(inputs, outputs, {});
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  return times;
}

std::vector<std::vector<double>> CpuEngine::time(const std::vector<Tensor>& inputs,
                                                 int repeats) const {
  std::vector<Tensor> outputs = fresh_outputs(program_, {});
  run(inputs, outputs, {});
  std::vector<std::vector<double>> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<double>& now = times.emplace_back();
    Clock::time_point start;
    run(inputs, outputs, {}, [&](std::size_t, bool begins, const Context&) {
      if (begins)
        start = Clock::now();
      else
        now.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    });
  }
  return times;
}

void CpuEngine::watch(const std::vector<Tensor>& inputs, const Show& show) const {
  std::vector<Tensor> outputs = fresh_outputs(program_, {});
  run(inputs, outputs, {}, [&](std::size_t step, bool begins, const Context& context) {
    // What nobody needs has not been computed.
    if (begins && is_needed(context, bound_[step]))
      show(step, {context.operands.data(), bound_[step].operands.size()});
  });
}

void CpuEngine::run_step(std::size_t step, std::span<std::byte* const> operands) const {
  const cpu::Kernel& kernel = *bound_[step].kernel;
  kernel.run(operands, allocate(static_cast<std::int64_t>(kernel.scratch_bytes()))->data);
}

}  // namespace tensor::detail

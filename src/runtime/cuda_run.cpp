// Calls of a CudaEngine: where the operands lie, what is recorded of them, and timing.
#include <algorithm>

#include "src/kernels/cuda/driver/range.h"
#include "src/kernels/host/strided_copy.h"
#include "src/ops/on_device.h"
#include "src/runtime/cuda_engine.h"
#include "src/runtime/device_memory.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tensor/threads.h"

namespace tensor::detail {
namespace {

constexpr int kLaunchesTimed = 10;  // of one step, to time it
// One thread does not copy as fast as a GPU's bus; more than these find the memory busy.
constexpr int kCopyThreads = 8;
constexpr std::int64_t kBytesOfThread = 1 << 20;  // for less, waking another takes longer

void copy_on_host(const std::byte* from, const Layout& layout, DType dtype, std::byte* to) {
  const std::int64_t bytes = num_elements(layout.shape) * item_size(dtype);
  const std::int64_t most = std::min(kCopyThreads, threads());
  const auto used = static_cast<int>(std::clamp<std::int64_t>(bytes / kBytesOfThread, 1, most));
  cpu::StridedCopy(layout.shape, layout.strides, row_major(layout.shape), item_size(dtype))
      .run(from, to, used);
}

bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1 && a[axis] != b[axis]) return false;
  return true;
}

// As `data`, a view into what the layout counts from.
Tensor view_of(const Tensor& data, const Layout& layout) {
  TensorImpl view = impl(data);
  view.type.shape = layout.shape;
  view.strides = layout.strides;
  view.offset += layout.offset;
  return make_tensor(std::move(view));
}

}  // namespace

// ---- Operands

ValueId CudaEngine::root_of_output(std::size_t output) const {
  return wires_.root[at(program_.laid.graph.outputs()[output])];
}

// Downloaded are host outputs that kernels wrote: what the caller gave and what is constant is on
// the host already.
bool CudaEngine::is_downloaded(const Context& context, std::size_t output) const {
  const Place home = program_.placement.of(root_of_output(output)).place;
  return context.at[program_.inputs.size() + output] == kMirrorOfHost &&
         (home == Place::arena || home == Place::output);
}

const Layout& CudaEngine::operand_layout(std::size_t operand) const {
  const Graph& graph = program_.laid.graph;
  const std::size_t inputs = graph.inputs().size();
  return program_.laid
      .layouts[at(operand < inputs ? graph.inputs()[operand] : graph.outputs()[operand - inputs])];
}

bool CudaEngine::fits(const Tensor& x, std::size_t operand) const {
  const Layout& layout = operand_layout(operand);
  const std::int64_t skip = layout.offset * item_size(x.dtype());
  const std::int64_t alignment = skip == 0 ? kDeviceAlignment : skip & -skip;
  return same_strides(layout.shape, x.strides(), layout.strides) &&
         address_of(placed(x).first()) % static_cast<cuda::Address>(alignment) == 0;
}

void CudaEngine::bind(Context& context, const std::vector<Tensor>& inputs,
                      const std::vector<Tensor>& outputs) const {
  const auto bind_operand = [&](std::size_t operand, const Tensor& x) {
    const Layout& layout = operand_layout(operand);
    context.operands[operand] = x;
    context.at[operand] = address_of(placed(x).first()) -
                          static_cast<cuda::Address>(layout.offset * item_size(x.dtype()));
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].device().is_cuda()) {
      bind_operand(i, fits(inputs[i], i) ? inputs[i] : inputs[i].copy());
      continue;
    }
    context.operands[i] = inputs[i];
    context.at[i] = kMirrorOfHost;
    copy_on_host(stored(inputs[i]).first(), {inputs[i].shape(), inputs[i].strides(), 0},
                 inputs[i].dtype(), context.pinned.data() + mirror_at_[i]);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t operand = inputs.size() + i;
    const bool on_device = outputs[i].device().is_cuda();
    const bool is_copied = program_.placement.is_copied(i);
    if (on_device && !is_copied) {
      const Tensor& x = outputs[i];
      bind_operand(operand,
                   fits(x, operand)
                       ? x
                       : as_laid(program_, i, empty(x.shape(), x.dtype(), program_.target.device)));
      continue;
    }
    context.operands[operand] = outputs[i];
    context.at[operand] = on_device ? kNotDownloaded : kMirrorOfHost;
  }
}

// What a copied output is a view of: something in the context's memory, an input or a constant.
Tensor CudaEngine::value_of_output(const Context& context, std::size_t output) const {
  const Graph& graph = program_.laid.graph;
  const ValueId id = graph.outputs()[output];
  const Layout& layout = program_.laid.layouts[at(id)];
  const Location& home = program_.placement.of(root_of_output(output));
  if (home.place == Place::constant) return constant(id);
  if (home.place == Place::input) {
    const Tensor& input = context.operands[home.index];
    return view_of(input.is_contiguous() ? input : input.copy(), layout);
  }
  return device_tensor(context.values.storage, address(context, program_.placement.of(id)),
                       layout.shape, graph.type(id).dtype, layout.strides);
}

void CudaEngine::take_output(Context& context, std::size_t output, const Tensor& to) const {
  const std::size_t operand = program_.inputs.size() + output;
  if (to.device().is_cuda()) {
    const Tensor& written = context.operands[operand];
    if (program_.placement.is_copied(output))
      copy_on_device(value_of_output(context, output).to(to.device()), to);
    else if (placed(written).first() != placed(to).first())
      copy_on_device(written, to);
    return;
  }
  const Layout& layout = operand_layout(operand);
  if (is_downloaded(context, output)) {
    const std::byte* from =
        context.pinned.data() + mirror_at_[operand] + layout.offset * item_size(to.dtype());
    copy_on_host(from, layout, to.dtype(), stored(to).first());
  } else {
    const Tensor value = value_of_output(context, output).to(Device());
    copy_on_host(stored(value).first(), {value.shape(), value.strides(), 0}, to.dtype(),
                 stored(to).first());
  }
}

// ---- Running

// A graph takes long to make: for operands that lie on the device it is made when they come again.
// What runs outlives its place among the recordings. At the first sums NCCL makes connections,
// which is nothing to be recorded.
bool CudaEngine::is_started_one_by_one(const Context& context,
                                       const Recordings::Found& found) const {
  if (found.recorded->graph) return false;
  const bool stays = std::all_of(context.at.begin(), context.at.end(),
                                 [](cuda::Address address) { return address <= kMirrorOfDevice; });
  const bool connects = found.is_new && program_.target.share.sums;
  return device_.waits_for_kernels() || launches_ <= kFewLaunches || connects ||
         (found.is_new && !stays);
}

Recordings::Found CudaEngine::recording_for(Context& context) const {
  return context.recordings.of(
      &context,
      {address_of(context.values.data()), address_of(context.mirrors.data()),
       address_of(context.pinned.data())},
      context.at);
}

std::shared_ptr<Recorded> CudaEngine::start(Context& context, cuda::Stream& stream,
                                            const Recordings::Found& found) const {
  const std::shared_ptr<Recorded> mine = found.recorded;
  if (!mine->graph) {
    mine->host_calls.clear();
    if (is_started_one_by_one(context, found)) {
      record_whole(context, stream, mine->host_calls);
      return mine;
    }
    mine->graph.emplace(
        device_, [&](cuda::Stream& capture) { record_whole(context, capture, mine->host_calls); });
  }
  mine->graph->start(stream);
  return mine;
}

// After an error nothing may be under way in memory that the next call gets.
void CudaEngine::settle(cuda::Stream& stream) noexcept {
  try {
    stream.synchronize();
  } catch (const std::exception&) {  // the device is lost: enter() says so from now on
  }
}

void CudaEngine::finish(Context& context, cuda::Stream& stream) const {
  stream.synchronize();
  if (context.error) std::rethrow_exception(std::exchange(context.error, nullptr));
}

Arenas::Lease CudaEngine::lend(Arenas& arenas, std::int64_t bytes, Block& to) const {
  Arenas::Lease lease = arenas.take(bytes, to.last);
  to.storage = lease.block(), to.last = to.storage->data;
  return lease;
}

template <class Work>
void CudaEngine::with_context(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                              const Work& work) const {
  const auto context = contexts_.take([&] { return new_context(); });
  const auto on_host = [](const Tensor& x) { return !x.device().is_cuda(); };
  const bool has_mirrors = std::any_of(inputs.begin(), inputs.end(), on_host) ||
                           std::any_of(outputs.begin(), outputs.end(), on_host);
  const Arenas::Lease values = lend(memory_.values, values_bytes_, context->values);
  std::optional<Arenas::Lease> mirrors, pinned;
  if (has_mirrors) mirrors.emplace(lend(memory_.mirrors, mirrors_bytes_, context->mirrors));
  if (has_mirrors || call_host_bytes_ > 0)
    pinned.emplace(lend(memory_.pinned, mirrors_bytes_ + call_host_bytes_, context->pinned));
  const auto stream = take_stream(device_);
  // The caller's tensors and the memory are let go, also after an error.
  struct Release {
    Context& context;
    ~Release() { context.let_go(); }
  } release{*context};
  try {
    bind(*context, inputs, outputs);
    work(*context, *stream);
  } catch (...) {
    settle(*stream);
    throw;
  }
}

// A graph cannot be stopped: a few steps at a time, of which the next ones are under way when it
// is asked whether they are wanted.
void CudaEngine::run_until(const std::stop_token& stop, Context& context,
                           cuda::Stream& stream) const {
  constexpr std::size_t kStepsAtATime = 8;
  std::deque<HostCall> calls;
  std::deque<cuda::Event> done;
  try {
    record_uploads(context, stream);
    for (std::size_t begin = 0; begin < bound_.size(); begin += kStepsAtATime) {
      if (done.size() > 1) done.front().wait(), done.pop_front();
      check_goes_on(stop);
      const std::size_t end = std::min(begin + kStepsAtATime, bound_.size());
      record_range(context, stream, calls, begin, end, 0);
      done.emplace_back(device_).record(stream);
    }
    record_downloads(context, stream);
    finish(context, stream);
  } catch (...) {
    settle(stream);  // before the host calls go
    throw;
  }
}

void CudaEngine::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs,
                     const std::stop_token& stop) const {
  const cuda::Range range(name_);
  with_context(inputs, outputs, [&](Context& context, cuda::Stream& stream) {
    if (stop.stop_possible()) {
      run_until(stop, context, stream);
    } else {
      const auto running = start(context, stream, recording_for(context));
      finish(context, stream);
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) take_output(context, i, outputs[i]);
  });
}

std::vector<double> CudaEngine::time_whole(const std::vector<Tensor>& inputs, int repeats) const {
  std::vector<double> times;
  const std::vector<Tensor> outputs = with_checks(program_, fresh_outputs(program_, inputs));
  with_context(inputs, outputs, [&](Context& context, cuda::Stream& stream) {
    const auto running = start(context, stream, recording_for(context));
    finish(context, stream);
    std::deque<HostCall> calls;
    const cuda::LaunchGraph graph(
        device_, [&](cuda::Stream& capture) { record_steps(context, capture, calls); });
    cuda::Event before(device_), after(device_);
    for (int repeat = 0; repeat < repeats; ++repeat) {
      before.record(stream);
      graph.start(stream);
      after.record(stream);
      finish(context, stream);
      times.push_back(after.microseconds_since(before));
    }
  });
  return times;
}

// Every step by itself, several times in one graph, as it follows a kernel there.
std::vector<std::vector<double>> CudaEngine::time(const std::vector<Tensor>& inputs,
                                                  int repeats) const {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(repeats));
  const std::vector<Tensor> outputs = with_checks(program_, fresh_outputs(program_, inputs));
  with_context(inputs, outputs, [&](Context& context, cuda::Stream& stream) {
    const auto running = start(context, stream, recording_for(context));
    finish(context, stream);
    cuda::Event before(device_), after(device_);
    for (const Bound& step : bound_) {
      const cuda::Resolve resolve = resolve_in(context, step);
      std::deque<HostCall> calls;
      const cuda::LaunchGraph graph(device_, [&](cuda::Stream& capture) {
        capture.launched().describe(step.name);
        for (int launch = 0; launch < kLaunchesTimed; ++launch)
          if (step.lowered.on_host)
            record_on_host(context, capture, step, calls);
          else if (step.lowered.all_reduced > 0)
            record_sum(context, capture, step);
          else
            for (std::size_t i = 0; i < step.kernels.size(); ++i)
              cuda::start(capture, *step.kernels[i], step.lowered.calls[i], resolve,
                          launch + i > 0);
      });
      graph.start(stream);
      for (auto& now : times) {
        before.record(stream);
        graph.start(stream);
        after.record(stream);
        finish(context, stream);
        now.push_back(after.microseconds_since(before) / kLaunchesTimed);
      }
    }
  });
  return times;
}

// Every operand in a block of its own, its first element as far from the block's begin as it is
// from its root's.
void CudaEngine::run_step(std::size_t index, std::span<std::byte* const> operands) const {
  const Bound& step = bound_[index];
  if (step.lowered.on_host) return step.lowered.on_host(operands);
  if (step.lowered.all_reduced > 0) {  // the summand of this device, as the reference has it
    const DType dtype = program_.laid.graph.type(step.group->writes[0]).dtype;
    std::copy_n(operands[0], step.lowered.all_reduced * item_size(dtype), operands[1]);
    return;
  }
  struct Copy {
    std::shared_ptr<Storage> block;
    std::byte *first, *lowest;  // on the device
    std::span<std::byte> host;
  };
  std::vector<Copy> copies;
  const auto add = [&](ValueId id) {
    const std::int64_t skip =
        program_.laid.layouts[at(id)].offset * item_size(program_.laid.graph.type(id).dtype);
    const Reach reach = reach_in_memory(id);
    const std::int64_t begin = std::min<std::int64_t>(skip + reach.first, 0);
    Copy copy;
    copy.block = allocate_on(program_.target.device, skip + reach.first - begin + reach.bytes);
    copy.first = copy.block->data + skip - begin;
    copy.lowest = copy.first + reach.first;
    copy.host = {operands[copies.size()] + reach.first, static_cast<std::size_t>(reach.bytes)};
    upload(program_.target.device, copy.lowest, copy.host);
    copies.push_back(std::move(copy));
  };
  for (const ValueId id : step.group->reads) add(id);
  for (const ValueId id : step.group->writes) add(id);
  const auto scratch = allocate_on(program_.target.device, step.lowered.scratch_bytes);
  const auto stream = take_stream(device_);
  const auto resolve = [&](const cuda::Pointer& where) {
    const auto i = static_cast<std::size_t>(where.index);
    if (where.base == cuda::Pointer::Base::packed)
      return address_of(placed(step.packed[i]).first());
    if (where.base == cuda::Pointer::Base::scratch) return address_of(scratch->data);
    return address_of(copies[i].first);
  };
  stream->launched().describe(step.name);
  for (std::size_t i = 0; i < step.kernels.size(); ++i)
    cuda::start(*stream, *step.kernels[i], step.lowered.calls[i], resolve, i > 0);
  stream->synchronize();
  for (std::size_t i = step.group->reads.size(); i < copies.size(); ++i)
    download(program_.target.device, copies[i].lowest, copies[i].host);
}

}  // namespace tensor::detail

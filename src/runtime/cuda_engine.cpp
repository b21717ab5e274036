#include "src/runtime/cuda_engine.h"

#include <algorithm>
#include <utility>

#include "src/core/storage.h"
#include "src/kernels/cpu/strided_copy.h"
#include "tensor/creation.h"
#include "tensor/io.h"

namespace tensor::detail {
namespace {

constexpr std::int64_t kAlignment = 1024;  // of every block: what swizzled boxes ask for, and more
constexpr int kLaunchesTimed = 10;         // of one step, to time it

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

// Takes `bytes` behind what is taken.
std::int64_t take(std::int64_t& taken, std::int64_t bytes) {
  const std::int64_t place = taken;
  taken += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return place;
}

void copy_strided(const Tensor& from, const Strides& to_strides, std::byte* to) {
  const TensorImpl& t = stored(from);
  cpu::StridedCopy(t.type.shape, t.strides, to_strides, item_size(t.type.dtype))
      .run(t.first(), to, 1);
}

// The offsets of the lowest and the highest element, counted from a layout's first one.
std::pair<std::int64_t, std::int64_t> reach(const Layout& layout) {
  std::int64_t first = 0, last = 0;
  for (int axis = 0; axis < layout.shape.rank(); ++axis) {
    const std::int64_t span = (layout.shape[axis] - 1) * layout.strides[axis];
    (span < 0 ? first : last) += span;
  }
  return {first, last};
}

}  // namespace

CudaEngine::CudaEngine(const Program& program, cuda::Device& device, const cuda::Machine& machine)
    : program_(program), device_(device), wires_(wiring(program.laid.graph)) {
  lower(machine);
  place();
  upload_constants();
}

// ---- Building

void CudaEngine::lower(const cuda::Machine& machine) {
  std::vector<const cuda::Call*> calls;
  for (std::size_t g = 0; g < program_.plan.groups.size(); ++g) {
    const Group& group = program_.plan.groups[g];
    Bound step{&group, cuda::lower_group(program_.laid, group, machine), {}, {}};
    steps_.push_back({static_cast<int>(g), step.lowered.description});
    bound_.push_back(std::move(step));
  }
  for (const Bound& step : bound_)
    for (const cuda::Call& call : step.lowered.calls) calls.push_back(&call);
  const auto kernels = cuda::load_kernels(device_, calls);
  auto next = kernels.begin();
  for (Bound& step : bound_)
    for (std::size_t i = 0; i < step.lowered.calls.size(); ++i) step.kernels.push_back(*next++);
}

std::int64_t CudaEngine::root_bytes(ValueId id) const {
  const TensorType& type = program_.laid.graph.type(wires_.root[at(id)]);
  return num_elements(type.shape) * item_size(type.dtype);
}

void CudaEngine::place() {
  const Graph& graph = program_.laid.graph;
  const auto mirrored = [&](const TensorType& type) {
    const std::int64_t bytes = num_elements(type.shape) * item_size(type.dtype);
    return Mirror{take(memory_bytes_, bytes), take(host_bytes_, bytes), bytes};
  };
  for (const TensorType& type : program_.inputs) inputs_.push_back(mirrored(type));
  for (const TensorType& type : program_.outputs) outputs_.push_back(mirrored(type));
  for (const std::size_t i : program_.placement.copied_outputs) {
    const ValueId id = graph.outputs()[i];
    // As much as the value that it is a view of.
    outputs_[i] = {0, take(host_bytes_, root_bytes(id)), root_bytes(id)};
  }
  arena_at_ = take(memory_bytes_, program_.placement.memory.bytes);
  std::int64_t scratch = 0, on_host = 0;
  for (const Bound& step : bound_) {
    scratch = std::max(scratch, step.lowered.scratch_bytes);
    std::int64_t operands = 0;
    if (step.lowered.on_host) {
      for (const ValueId id : step.group->reads) take(operands, root_bytes(id));
      for (const ValueId id : step.group->writes) take(operands, root_bytes(id));
    }
    on_host = std::max(on_host, operands);
  }
  scratch_at_ = take(memory_bytes_, scratch);
  host_call_at_ = take(host_bytes_, on_host);
}

// Constants that kernels read as they are, and those that were packed for them, in one block.
void CudaEngine::upload_constants() {
  const Graph& graph = program_.laid.graph;
  constant_at_.assign(program_.placement.constants.size(), -1);
  std::vector<std::pair<std::int64_t, Tensor>> uploads;
  // Where the tensor's first element comes to lie.
  const auto keep = [&](const Tensor& x) {
    const auto [first, last] = reach({x.shape(), x.strides(), 0});
    const std::int64_t item = item_size(x.dtype());
    const std::int64_t place = take(constant_bytes_, (last - first + 1) * item) - first * item;
    uploads.emplace_back(place, x);
    return place;
  };
  for (Bound& step : bound_) {
    const auto note = [&](const cuda::Pointer& pointer) {
      const auto& reads = step.group->reads;
      if (pointer.base != cuda::Pointer::Base::operand || pointer.index >= std::ssize(reads))
        return;
      const ValueId root = wires_.root[at(reads[static_cast<std::size_t>(pointer.index)])];
      if (!graph.is_constant(root)) return;
      std::int64_t& place = constant_at_[program_.placement.of(root).index];
      if (place < 0) place = keep(graph[root].constant);
    };
    for (const cuda::Call& call : step.lowered.calls)
      for (const cuda::Argument& argument : call.arguments) {
        if (const auto* pointer = std::get_if<cuda::Pointer>(&argument)) note(*pointer);
        if (const auto* view = std::get_if<cuda::TensorMapOf>(&argument)) note(view->memory);
      }
    for (const cuda::Lowered::Packed& packed : step.lowered.packed)
      step.packed.push_back(
          keep(packed.pack(constant(step.group->reads[static_cast<std::size_t>(packed.operand)]))));
  }
  constants_.emplace(device_, constant_bytes_);
  for (const auto& [place, tensor] : uploads) {
    if (tensor.size() == 0) continue;
    const TensorImpl& t = stored(tensor);
    const auto [first, last] = reach({t.type.shape, t.strides, 0});
    const std::int64_t item = item_size(t.type.dtype);
    constants_->upload(
        {t.first() + first * item, static_cast<std::size_t>((last - first + 1) * item)},
        place + first * item);
    forget_pages(tensor);
  }
}

// A constant of the graph, or a view of one.
Tensor CudaEngine::constant(ValueId id) const {
  const Graph& graph = program_.laid.graph;
  if (graph.is_constant(id)) return graph[id].constant;
  const ValueId root = wires_.root[at(id)];
  if (!graph.is_constant(root)) internal_error("cuda", "packs an operand that is no constant");
  const Layout& layout = program_.laid.layouts[at(id)];
  TensorImpl view = impl(graph[root].constant);
  view.type.shape = layout.shape;
  view.strides = layout.strides;
  view.offset += layout.offset;
  return make_tensor(std::move(view));
}

// ---- Recording

CudaEngine::Context::Context(const CudaEngine& engine)
    : memory(engine.device_, engine.memory_bytes_),
      host(engine.device_, engine.host_bytes_),
      stream(engine.device_) {}

cuda::Address CudaEngine::address(const Context& context, const Location& location) const {
  const auto from = [](const cuda::Buffer& buffer, std::int64_t place) {
    return buffer.address() + static_cast<cuda::Address>(place);
  };
  switch (location.place) {
    case Place::arena:
      return from(context.memory, arena_at_ + location.offset);
    case Place::input:
      return from(context.memory, inputs_[location.index].device + location.offset);
    case Place::output:
      return from(context.memory, outputs_[location.index].device + location.offset);
    case Place::constant:
      return from(*constants_, constant_at_[location.index] + location.offset);
  }
  return 0;
}

cuda::Resolve CudaEngine::resolve_in(const Context& context, const Bound& step) const {
  return [&](const cuda::Pointer& pointer) {
    const auto index = static_cast<std::size_t>(pointer.index);
    const auto& [reads, writes] = std::tie(step.group->reads, step.group->writes);
    switch (pointer.base) {
      case cuda::Pointer::Base::packed:
        return constants_->address() + static_cast<cuda::Address>(step.packed[index]);
      case cuda::Pointer::Base::scratch:
        return context.memory.address() + static_cast<cuda::Address>(scratch_at_);
      case cuda::Pointer::Base::operand:
        break;
    }
    const ValueId id = index < reads.size() ? reads[index] : writes[index - reads.size()];
    return address(context, program_.placement.of(id));
  };
}

void CudaEngine::record_steps(Context& context, cuda::Stream& stream) const {
  bool follows_kernel = false;
  for (const Bound& step : bound_) {
    if (step.lowered.on_host) {
      record_on_host(context, stream, step);
      follows_kernel = false;
      continue;
    }
    const cuda::Resolve resolve = resolve_in(context, step);
    for (std::size_t i = 0; i < step.kernels.size(); ++i) {
      cuda::start(stream, *step.kernels[i], step.lowered.calls[i], resolve, follows_kernel);
      follows_kernel = true;
    }
  }
}

// The memory of every operand's root is copied to the host, and that of the results back.
void CudaEngine::record_on_host(Context& context, cuda::Stream& stream, const Bound& step) const {
  const Graph& graph = program_.laid.graph;
  HostCall& call = context.host_calls.emplace_back();
  call.run = &step.lowered.on_host;
  call.error = &context.error;
  std::int64_t taken = host_call_at_;
  const auto add = [&](ValueId id, bool is_read) {
    const ValueId root = wires_.root[at(id)];
    const std::int64_t skip =
        program_.laid.layouts[at(id)].offset * item_size(graph.type(id).dtype);
    std::byte* host = nullptr;
    if (graph.is_constant(root)) {
      host = stored(graph[root].constant).first();
    } else {
      host = context.host.data() + take(taken, root_bytes(id));
      if (is_read)
        cuda::download(stream, host, address(context, program_.placement.of(root)), root_bytes(id));
    }
    call.operands.push_back(host + skip);
  };
  for (const ValueId id : step.group->reads) add(id, true);
  for (const ValueId id : step.group->writes) add(id, false);
  cuda::call_on_host(
      stream,
      [](void* argument) {
        auto& host_call = *static_cast<HostCall*>(argument);
        try {
          (*host_call.run)(host_call.operands);
        } catch (const std::exception& error) {
          *host_call.error = error.what();
        }
      },
      &call);
  for (std::size_t i = 0; i < step.group->writes.size(); ++i) {
    const ValueId id = step.group->writes[i];
    cuda::upload(stream, address(context, program_.placement.of(id)),
                 call.operands[step.group->reads.size() + i], root_bytes(id));
  }
}

void CudaEngine::record_whole(Context& context, cuda::Stream& stream) const {
  for (const Mirror& input : inputs_)
    cuda::upload(stream, context.memory.address() + static_cast<cuda::Address>(input.device),
                 context.host.data() + input.host, input.bytes);
  record_steps(context, stream);
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const ValueId root = wires_.root[at(program_.laid.graph.outputs()[i])];
    const Location& home = program_.placement.of(root);
    // What the caller gave or what is constant is on the host already.
    if (home.place == Place::arena || home.place == Place::output)
      cuda::download(stream, context.host.data() + outputs_[i].host, address(context, home),
                     outputs_[i].bytes);
  }
}

// ---- Running

void CudaEngine::fill_inputs(Context& context, const std::vector<Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i)
    copy_strided(inputs[i], row_major(inputs[i].shape()), context.host.data() + inputs_[i].host);
}

void CudaEngine::take_outputs(const Context& context, std::vector<Tensor>& outputs) const {
  const Graph& graph = program_.laid.graph;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ValueId id = graph.outputs()[i], root = wires_.root[at(id)];
    const Layout& layout = program_.laid.layouts[at(id)];
    const Location& home = program_.placement.of(root);
    const std::byte* from = context.host.data() + outputs_[i].host;
    if (home.place == Place::input) from = context.host.data() + inputs_[home.index].host;
    if (home.place == Place::constant) from = stored(graph[root].constant).first();
    const std::int64_t item = item_size(graph.type(id).dtype);
    cpu::StridedCopy(layout.shape, layout.strides, row_major(layout.shape), item)
        .run(from + layout.offset * item, stored(outputs[i]).first(), 1);
  }
}

void CudaEngine::finish(Context& context) const {
  context.stream.synchronize();
  if (!context.error.empty()) internal_error("host step", std::exchange(context.error, {}));
}

void CudaEngine::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const {
  const auto context = contexts_.take([&] { return std::make_unique<Context>(*this); });
  fill_inputs(*context, inputs);
  if (!context->whole)
    context->whole.emplace(device_, [&](cuda::Stream& stream) { record_whole(*context, stream); });
  context->whole->start(context->stream);
  finish(*context);
  take_outputs(*context, outputs);
}

std::vector<double> CudaEngine::time_whole(const std::vector<Tensor>& inputs, int repeats) const {
  std::vector<Tensor> outputs = fresh_outputs(program_);
  run(inputs, outputs);
  const auto context = contexts_.take([&] { return std::make_unique<Context>(*this); });
  if (!context->kernels)
    context->kernels.emplace(device_,
                             [&](cuda::Stream& stream) { record_steps(*context, stream); });
  cuda::Event before(device_), after(device_);
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    before.record(context->stream);
    context->kernels->start(context->stream);
    after.record(context->stream);
    finish(*context);
    times.push_back(after.microseconds_since(before));
  }
  return times;
}

// Every step by itself, several times in one graph, as it follows a kernel there.
std::vector<std::vector<double>> CudaEngine::time(const std::vector<Tensor>& inputs,
                                                  int repeats) const {
  std::vector<Tensor> outputs = fresh_outputs(program_);
  run(inputs, outputs);
  const auto context = contexts_.take([&] { return std::make_unique<Context>(*this); });
  cuda::Event before(device_), after(device_);
  std::vector<std::vector<double>> times(static_cast<std::size_t>(repeats));
  for (const Bound& step : bound_) {
    const cuda::Resolve resolve = resolve_in(*context, step);
    const cuda::LaunchGraph graph(device_, [&](cuda::Stream& stream) {
      for (int launch = 0; launch < kLaunchesTimed; ++launch)
        if (step.lowered.on_host)
          record_on_host(*context, stream, step);
        else
          for (std::size_t i = 0; i < step.kernels.size(); ++i)
            cuda::start(stream, *step.kernels[i], step.lowered.calls[i], resolve, launch + i > 0);
    });
    graph.start(context->stream);
    for (auto& now : times) {
      before.record(context->stream);
      graph.start(context->stream);
      after.record(context->stream);
      finish(*context);
      now.push_back(after.microseconds_since(before) / kLaunchesTimed);
    }
  }
  return times;
}

void CudaEngine::run_step(std::size_t index, std::span<std::byte* const> operands) const {
  const Bound& step = bound_[index];
  if (step.lowered.on_host) return step.lowered.on_host(operands);
  const Graph& graph = program_.laid.graph;
  // Every operand in a block of its own, its first element as far from the block's begin as it is
  // from its root's.
  struct Copy {
    std::int64_t first, place, bytes;  // `first` element's offset, and all from the lowest one on
  };
  std::vector<Copy> copies;
  std::int64_t taken = 0;
  const auto add = [&](ValueId id) {
    const Layout& layout = program_.laid.layouts[at(id)];
    const std::int64_t item = item_size(graph.type(id).dtype);
    const auto [low, high] = reach(layout);
    const std::int64_t skip = (layout.offset + low) * item, bytes = (high - low + 1) * item;
    const std::int64_t place = take(taken, skip + bytes) + skip;
    copies.push_back({place - low * item, place, bytes});
  };
  for (const ValueId id : step.group->reads) add(id);
  for (const ValueId id : step.group->writes) add(id);
  const std::int64_t scratch_at = take(taken, step.lowered.scratch_bytes);
  cuda::Buffer memory(device_, taken);
  for (std::size_t i = 0; i < copies.size(); ++i)
    memory.upload({operands[i] - (copies[i].first - copies[i].place),
                   static_cast<std::size_t>(copies[i].bytes)},
                  copies[i].place);
  cuda::Stream stream(device_);
  const auto resolve = [&](const cuda::Pointer& pointer) {
    const auto i = static_cast<std::size_t>(pointer.index);
    const auto from = [](const cuda::Buffer& buffer, std::int64_t place) {
      return buffer.address() + static_cast<cuda::Address>(place);
    };
    if (pointer.base == cuda::Pointer::Base::packed) return from(*constants_, step.packed[i]);
    if (pointer.base == cuda::Pointer::Base::scratch) return from(memory, scratch_at);
    return from(memory, copies[i].first);
  };
  for (std::size_t i = 0; i < step.kernels.size(); ++i)
    cuda::start(stream, *step.kernels[i], step.lowered.calls[i], resolve, i > 0);
  stream.synchronize();
  for (std::size_t i = step.group->reads.size(); i < copies.size(); ++i)
    memory.download({operands[i] - (copies[i].first - copies[i].place),
                     static_cast<std::size_t>(copies[i].bytes)},
                    copies[i].place);
}

}  // namespace tensor::detail

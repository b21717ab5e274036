#include "src/runtime/cuda_engine.h"

#include <algorithm>
#include <utility>

#include "src/core/rounding.h"
#include "src/kernels/cuda/driver/range.h"
#include "src/runtime/describe.h"
#include "src/runtime/device_memory.h"
#include "src/runtime/reach.h"
#include "src/runtime/uploads.h"
#include "tensor/creation.h"
#include "tensor/io.h"

namespace tensor::detail {
namespace {

constexpr std::int64_t kAlignment = 1024;  // of every block: what swizzled boxes ask for, and more

// Takes `bytes` behind what is taken.
std::int64_t take(std::int64_t& taken, std::int64_t bytes) {
  const std::int64_t place = taken;
  taken += round_up(bytes, kAlignment);
  return place;
}

}  // namespace

std::vector<Kernels::Source> CudaKernels::sources(std::size_t group) const {
  std::vector<Source> result;
  for (const cuda::Call& call : groups[group].calls)
    result.push_back({call.entry, call.source.whole_text()});
  return result;
}

CudaEngine::CudaEngine(const Program& program, cuda::Device& device, CudaKernels kernels)
    : program_(program),
      memory_(program.common->memory(program.target.device)),
      device_(device),
      wires_(wiring(program.laid.graph)) {
  load(std::move(kernels));
  place();
  upload_constants();
  name_steps();
  needs_.emplace_back(memory_.values, values_bytes_);
  needs_.emplace_back(memory_.mirrors, mirrors_bytes_);
  needs_.emplace_back(memory_.pinned, mirrors_bytes_ + call_host_bytes_);
}

// ---- Building

void CudaEngine::load(CudaKernels kernels) {
  std::vector<const cuda::Call*> calls;
  std::vector<Guards> guards = guards_of(program_.laid.graph, program_.plan);
  for (std::size_t g = 0; g < program_.plan.groups.size(); ++g) {
    const Group& group = program_.plan.groups[g];
    Bound step{&group, {}, std::move(kernels.groups[g]), {}, {}, {}};
    // A recorded condition cannot contain calls of the host, and what waits for other devices must
    // not depend on one.
    if (!step.lowered.on_host && step.lowered.all_reduced == 0 && cuda::Conditions::are_known())
      step.guards = std::move(guards[g]);
    if (!step.guards.empty() && !conditions_) conditions_.emplace(device_);
    steps_.push_back({static_cast<int>(g), step.lowered.description});
    bound_.push_back(std::move(step));
  }
  for (const Bound& step : bound_)
    for (const cuda::Call& call : step.lowered.calls) calls.push_back(&call);
  const auto loaded = cuda::load_kernels(device_, calls);
  program_.common->keep(loaded);
  auto next = loaded.begin();
  for (Bound& step : bound_)
    for (cuda::Call& call : step.lowered.calls) {
      step.kernels.push_back(*next++);
      // Megabytes a program, which nobody needs any more; assigning an empty text would keep them.
      const cuda::KernelSource gone = std::move(call.source);
    }
}

std::int64_t CudaEngine::root_bytes(ValueId id) const {
  const TensorType& type = program_.laid.graph.type(wires_.root[at(id)]);
  return num_elements(type.shape) * item_size(type.dtype);
}

Reach CudaEngine::reach_in_memory(ValueId id) const {
  const Layout& layout = program_.laid.layouts[at(id)];
  return reach_of(layout.shape, layout.strides, program_.laid.graph.type(id).dtype);
}

void CudaEngine::place() {
  const Graph& graph = program_.laid.graph;
  for (const ValueId id : graph.inputs()) operand_bytes_.push_back(root_bytes(id));
  // Where an output is a view: as much as the value that it is a view of.
  for (const ValueId id : graph.outputs()) operand_bytes_.push_back(root_bytes(id));
  for (const std::int64_t bytes : operand_bytes_) mirror_at_.push_back(take(mirrors_bytes_, bytes));
  take(values_bytes_, program_.placement.memory.bytes);
  std::int64_t scratch = 0;
  for (const Bound& step : bound_) {
    launches_ += step.kernels.size();
    scratch = std::max(scratch, step.lowered.scratch_bytes);
    std::int64_t operands = 0;
    if (step.lowered.on_host) {
      for (const ValueId id : step.group->reads) take(operands, reach_in_memory(id).bytes);
      for (const ValueId id : step.group->writes) take(operands, reach_in_memory(id).bytes);
    }
    call_host_bytes_ = std::max(call_host_bytes_, operands);
  }
  scratch_at_ = take(values_bytes_, scratch);
}

// In the model's own words: where its operators come from.
void CudaEngine::name_steps() {
  const Graph& graph = program_.laid.graph;
  std::string all;
  for (Bound& step : bound_) {
    const std::string where = place_of(graph, *step.group);
    if (!where.empty()) all = all.empty() ? where : merged_place(all, where);
    step.name = (where.empty() ? "" : where + ": ") + operators_of(graph, *step.group);
  }
  name_ = "run " + (all.empty() ? bound_.empty() ? "" : bound_.back().name : all);
}

// Constants that kernels read as they are, and those that were packed for them.
void CudaEngine::upload_constants() {
  const Graph& graph = program_.laid.graph;
  read_.resize(program_.placement.constants.size());
  std::vector<bool> is_wanted(read_.size(), false);
  Uploads uploads(graph, program_.target.device);
  for (Bound& step : bound_) {
    const auto note = [&](const cuda::Pointer& pointer) {
      const auto& reads = step.group->reads;
      if (pointer.base != cuda::Pointer::Base::operand || pointer.index >= std::ssize(reads))
        return;
      const ValueId root = wires_.root[at(reads[static_cast<std::size_t>(pointer.index)])];
      if (!graph.is_constant(root)) return;
      const std::size_t index = program_.placement.of(root).index;
      if (is_wanted[index]) return;
      is_wanted[index] = true;
      uploads.add(
          "as it is", {graph[root].constant}, [](const auto& all) { return all[0]; }, read_[index]);
    };
    for (const cuda::Call& call : step.lowered.calls)
      for (const cuda::Argument& argument : call.arguments) {
        if (const auto* pointer = std::get_if<cuda::Pointer>(&argument)) note(*pointer);
        if (const auto* view = std::get_if<cuda::TensorMapOf>(&argument)) note(view->memory);
      }
    step.packed.resize(step.lowered.packed.size());
    for (std::size_t i = 0; i < step.packed.size(); ++i) {
      const cuda::Lowered::Packed& packed = step.lowered.packed[i];
      uploads.add(packed.form, packed_from(step, packed), packed.pack, step.packed[i]);
    }
  }
  uploads.finish();
  for (const Tensor& x : read_)
    if (x.defined()) constants_.push_back(x);
  for (const Bound& step : bound_)
    constants_.insert(constants_.end(), step.packed.begin(), step.packed.end());
}

std::vector<Tensor> CudaEngine::packed_from(const Bound& step,
                                            const cuda::Lowered::Packed& packed) const {
  std::vector<Tensor> constants;
  for (const int operand : packed.operands)
    constants.push_back(constant(step.group->reads[static_cast<std::size_t>(operand)]));
  return constants;
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

// ---- Contexts

std::unique_ptr<CudaEngine::Context> CudaEngine::new_context() const {
  auto context = std::make_unique<Context>(program_.common->recordings());
  context->operands.resize(operand_bytes_.size());
  context->at.resize(operand_bytes_.size());
  return context;
}

// ---- Recording

cuda::Address CudaEngine::operand_address(const Context& context, std::size_t operand) const {
  if (context.at[operand] == kMirrorOfHost || context.at[operand] == kMirrorOfDevice)
    return address_of(context.mirrors.data() + mirror_at_[operand]);
  return context.at[operand];
}

cuda::Address CudaEngine::address(const Context& context, const Location& location) const {
  const auto offset = static_cast<cuda::Address>(location.offset);
  switch (location.place) {
    case Place::arena:
      return address_of(context.values.data()) + offset;
    case Place::input:
      return operand_address(context, location.index) + offset;
    case Place::output:
      return operand_address(context, program_.inputs.size() + location.index) + offset;
    case Place::constant:
      return address_of(placed(read_[location.index]).first()) + offset;
  }
  return 0;
}

cuda::Address CudaEngine::lowest(const Context& context, ValueId id) const {
  return address(context, program_.placement.of(id)) +
         static_cast<cuda::Address>(reach_in_memory(id).first);
}

cuda::Resolve CudaEngine::resolve_in(const Context& context, const Bound& step) const {
  return [&](const cuda::Pointer& pointer) {
    const auto index = static_cast<std::size_t>(pointer.index);
    const auto& [reads, writes] = std::tie(step.group->reads, step.group->writes);
    switch (pointer.base) {
      case cuda::Pointer::Base::packed:
        return address_of(placed(step.packed[index]).first());
      case cuda::Pointer::Base::scratch:
        return address_of(context.values.data() + scratch_at_);
      case cuda::Pointer::Base::operand:
        break;
    }
    const ValueId id = index < reads.size() ? reads[index] : writes[index - reads.size()];
    return address(context, program_.placement.of(id));
  };
}

void CudaEngine::record_steps(Context& context, cuda::Stream& stream,
                              std::deque<HostCall>& calls) const {
  record_range(context, stream, calls, 0, bound_.size(), 0);
}

// Steps whose first `depth` guards hold. What is not recorded runs all of them.
void CudaEngine::record_range(Context& context, cuda::Stream& stream, std::deque<HostCall>& calls,
                              std::size_t begin, std::size_t end, std::size_t depth) const {
  bool follows_kernel = false;
  const auto next_guard = [&](std::size_t i) -> const Guard* {
    const Guards& guards = bound_[i].guards;
    return stream.is_recorded() && guards.size() > depth ? &guards[depth] : nullptr;
  };
  for (std::size_t i = begin, next = 0; i < end; i = next) {
    const Bound& step = bound_[i];
    next = i + 1;
    if (const Guard* guard = next_guard(i)) {
      while (next < end && next_guard(next) && *next_guard(next) == *guard) ++next;
      conditions_->record(
          stream, address(context, program_.placement.of(guard->condition)), guard->value,
          [&](cuda::Stream& inside) { record_range(context, inside, calls, i, next, depth + 1); });
      follows_kernel = false;
      continue;
    }
    const cuda::Range range(step.name);
    if (step.lowered.on_host || step.lowered.all_reduced > 0) {
      step.lowered.on_host ? record_on_host(context, stream, step, calls)
                           : record_sum(context, stream, step);
      follows_kernel = false;
      continue;
    }
    stream.launched().describe(step.name);
    const cuda::Resolve resolve = resolve_in(context, step);
    for (std::size_t k = 0; k < step.kernels.size(); ++k) {
      cuda::start(stream, *step.kernels[k], step.lowered.calls[k], resolve, follows_kernel);
      follows_kernel = true;
    }
  }
}

// All that lies between the first and the last element of an operand is copied to the host, and
// back where it is written.
void CudaEngine::record_on_host(Context& context, cuda::Stream& stream, const Bound& step,
                                std::deque<HostCall>& calls) const {
  const Graph& graph = program_.laid.graph;
  HostCall& call = calls.emplace_back();
  call.run = &step.lowered.on_host;
  call.error = &context.error;
  std::int64_t taken = 0;
  const auto add = [&](ValueId id, bool is_read) {
    const Layout& layout = program_.laid.layouts[at(id)];
    const Reach reach = reach_in_memory(id);
    if (const ValueId root = wires_.root[at(id)]; graph.is_constant(root)) {
      call.operands.push_back(stored(graph[root].constant).first() +
                              layout.offset * item_size(graph.type(id).dtype));
      return;
    }
    std::byte* host = context.pinned.data() + mirrors_bytes_ + take(taken, reach.bytes);
    // Between the elements of a result there may be others.
    const bool has_gaps =
        reach.bytes > num_elements(layout.shape) * item_size(graph.type(id).dtype);
    if (is_read || has_gaps) cuda::download(stream, host, lowest(context, id), reach.bytes);
    call.operands.push_back(host - reach.first);
  };
  for (const ValueId id : step.group->reads) add(id, true);
  for (const ValueId id : step.group->writes) add(id, false);
  cuda::call_on_host(
      stream,
      [](void* argument) {
        auto& host_call = *static_cast<HostCall*>(argument);
        try {
          (*host_call.run)(host_call.operands);
        } catch (...) {
          *host_call.error = std::current_exception();
        }
      },
      &call);
  for (std::size_t i = 0; i < step.group->writes.size(); ++i) {
    const ValueId id = step.group->writes[i];
    const Reach reach = reach_in_memory(id);
    cuda::upload(stream, lowest(context, id),
                 call.operands[step.group->reads.size() + i] + reach.first, reach.bytes);
  }
}

void CudaEngine::record_sum(Context& context, cuda::Stream& stream, const Bound& step) const {
  const ValueId from = step.group->reads[0], to = step.group->writes[0];
  const Share& share = program_.target.share;
  if (!share.sums) internal_error("cuda", "adds up products of one device alone");
  share.sums->all_reduce(static_cast<std::size_t>(share.index), stream, lowest(context, from),
                         lowest(context, to), step.lowered.all_reduced,
                         program_.laid.graph.type(to).dtype);
}

void CudaEngine::record_uploads(Context& context, cuda::Stream& stream) const {
  for (std::size_t i = 0; i < program_.inputs.size(); ++i)
    if (context.at[i] == kMirrorOfHost)
      cuda::upload(stream, operand_address(context, i), context.pinned.data() + mirror_at_[i],
                   operand_bytes_[i]);
}

void CudaEngine::record_downloads(Context& context, cuda::Stream& stream) const {
  const std::size_t inputs = program_.inputs.size();
  for (std::size_t i = 0; i < program_.laid.graph.outputs().size(); ++i)
    if (is_downloaded(context, i))
      cuda::download(stream, context.pinned.data() + mirror_at_[inputs + i],
                     address(context, program_.placement.of(root_of_output(i))),
                     operand_bytes_[inputs + i]);
}

void CudaEngine::record_whole(Context& context, cuda::Stream& stream,
                              std::deque<HostCall>& calls) const {
  record_uploads(context, stream);
  record_steps(context, stream, calls);
  record_downloads(context, stream);
}

}  // namespace tensor::detail

// Eager operators on a device: each is a graph of one node, which goes through the compiler's last
// stages and is kept for the next call with such operands.
#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <unordered_map>

#include "src/ops/on_device.h"
#include "src/runtime/device_memory.h"
#include "src/runtime/program.h"
#include "src/trace/passes/transposed_convs.h"
#include "tensor/creation.h"
#include "tensor/text.h"

namespace tensor {
namespace {

using detail::Program;

// The programs that were used last. One thread at a time compiles.
class Programs {
 public:
  template <class Make>
  std::shared_ptr<const Program> get(const std::string& key, const Make& make) {
    const std::unique_lock lock(mutex_);
    if (const auto known = by_key_.find(key); known != by_key_.end()) {
      recent_.splice(recent_.begin(), recent_, known->second);
      return recent_.front().second;
    }
    recent_.emplace_front(key, make());
    by_key_[key] = recent_.begin();
    if (recent_.size() > kMost) {
      by_key_.erase(recent_.back().first);
      recent_.pop_back();
    }
    return recent_.front().second;
  }

  /// Lets all of them go, unless another thread compiles. Whether there were any.
  bool forget() {
    std::list<Entry> gone;  // when nothing is locked any more
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return false;
    by_key_.clear();
    gone.swap(recent_);
    return !gone.empty();
  }

 private:
  // A few kilobytes each, here and on the device, and what scratch their kernels need.
  static constexpr std::size_t kMost = 1024;
  using Entry = std::pair<std::string, std::shared_ptr<const Program>>;
  std::recursive_mutex mutex_;  // who compiles may have to forget
  std::list<Entry> recent_;
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

// Never destroyed, as the memory of devices.
Programs& programs() {
  static auto& all = *new Programs;
  return all;
}

// Kernels are made for an address no better aligned than this tensor's: so far from a multiple of
// kDeviceAlignment stands for all such addresses.
Layout layout_of(const Tensor& x) {
  const detail::TensorImpl& t = detail::placed(x);
  const auto address = static_cast<std::int64_t>(detail::address_of(t.first()));
  const std::int64_t aligned = address & -address;
  return {t.type.shape, t.strides,
          aligned >= detail::kDeviceAlignment ? 0 : aligned / item_size(t.type.dtype)};
}

// The device of the operands; UserError where there are several.
Device common_device(std::string_view where, std::span<const Tensor> inputs) {
  std::optional<Device> device;
  for (const Tensor& x : inputs)
    if (x.device().is_cuda()) {
      if (device && !(*device == x.device()))
        fail(where, "got tensors on ", *device, " and ", x.device(),
             ", need all on one device: move one of them with to(\"", *device, "\")");
      device = x.device();
    }
  for (const Tensor& x : inputs)
    if (!x.device().is_cuda() && x.rank() > 0)
      fail(where, "got tensors on ", *device, " and on the cpu (", x.type(),
           "), need all on one device: move one of them with to(\"", *device,
           "\"), or bring the others with to(\"cpu\")");
  return *device;
}

std::shared_ptr<const Program> compile_one(Op op, std::span<const Tensor> inputs,
                                           const Attrs& attrs, const std::vector<Layout>& layouts,
                                           const std::optional<Layout>& result,
                                           const Device& device) {
  Graph graph;
  std::vector<ValueId> operands;
  for (const Tensor& x : inputs) operands.push_back(graph.add_input(x.type()));
  graph.set_outputs({graph.add(op, operands, attrs)});
  LaidOutGraph laid = lay_out(transposed_convs(graph), layouts);
  if (result) laid.layouts[at(laid.graph.outputs().front())] = *result;
  detail::Target target = detail::target_of(device, 0, true);
  FusionPlan plan = fuse({laid}, target.cost());
  return detail::link(std::move(laid), std::move(plan), std::move(target));
}

// The operator's program. Its result lies as `result` says, or as the compiler likes it.
std::shared_ptr<const Program> program_of(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                                          const std::optional<Layout>& result,
                                          const Device& device) {
  std::vector<Layout> layouts;
  TextWriter key;
  const auto add = [&](const Layout& layout) {
    key << ' ' << layout.shape << layout.strides << layout.offset;
  };
  key << device << ' ' << static_cast<int>(op) << " (" << attrs << ')';
  for (const Tensor& x : inputs) {
    layouts.push_back(x.device().is_cuda() ? layout_of(x) : Layout{x.shape(), x.strides(), 0});
    key << ' ' << x.dtype() << (x.device().is_cuda() ? "" : " here");
    add(layouts.back());
  }
  if (result) add(*result);
  return programs().get(key.str(),
                        [&] { return compile_one(op, inputs, attrs, layouts, result, device); });
}

// Whether kernels may take its indices: those that a device has are brought here to be checked.
bool has_indices_in_range(Op op, std::span<const Tensor> inputs, const Attrs& attrs) {
  if (op != Op::take && op != Op::take_along_axis) return false;
  const std::int64_t extent = inputs[0].shape(static_cast<int>(attrs.integer("axis")));
  const std::vector<std::int64_t> indices = inputs[1].to_vector<std::int64_t>();
  return std::all_of(indices.begin(), indices.end(),
                     [&](std::int64_t i) { return i >= -extent && i < extent; });
}

// The last family of every target is the host's.
bool runs_on_host(const Program& program) {
  const int host = program.target.offers->families() - 1;
  return std::any_of(program.plan.groups.begin(), program.plan.groups.end(),
                     [&](const Group& group) { return group.family == host; });
}

Tensor apply_on_host(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                     const Device& device) {
  std::vector<Tensor> here;
  for (const Tensor& x : inputs) here.push_back(x.to(Device()));
  return apply_op(op, here, attrs).to(device);
}

}  // namespace

Tensor apply_on_device(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                       const TensorType& type) {
  const Device device = common_device(info(op).name, inputs);
  const auto is_empty = [](const Tensor& x) { return x.size() == 0; };
  if (num_elements(type.shape) == 0 || std::any_of(inputs.begin(), inputs.end(), is_empty))
    return apply_on_host(op, inputs, attrs, device);  // there is nothing to run on
  // copy() promises row-major order; other results lie as it is best for them.
  std::optional<Layout> result;
  if (op == Op::copy) result = Layout{type.shape, row_major(type.shape), 0};
  Attrs known = attrs;
  if (has_indices_in_range(op, inputs, attrs)) known.set("checked", true);
  const auto program = program_of(op, inputs, known, result, device);
  // The program would do the same, and keep page-locked memory for all operands.
  if (runs_on_host(*program)) return apply_on_host(op, inputs, attrs, device);
  const std::vector<Tensor> operands(inputs.begin(), inputs.end());
  std::vector<Tensor> outputs = detail::fresh_outputs(*program, operands);
  program->engine->run(operands, outputs, {});
  return outputs.front();
}

void copy_on_device(const Tensor& from, const Tensor& to) {
  if (to.size() == 0) return;
  const Device device = common_device("copy", std::array{from, to});
  const auto program = program_of(Op::copy, std::array{from}, {}, layout_of(to), device);
  std::vector<Tensor> outputs{to};
  program->engine->run({from}, outputs, {});
}

bool detail::forget_eager_programs() { return programs().forget(); }

}  // namespace tensor

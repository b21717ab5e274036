#include "tests/cuda/emulator/group_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "src/core/storage.h"
#include "src/ops/op.h"
#include "src/trace/group.h"
#include "src/trace/parallel.h"
#include "tests/cuda/kernel_names.h"
#include "tests/families.h"
#include "tests/seed.h"

namespace tensor::emulator {
namespace {

constexpr std::size_t kAlignment = 1024, kGuard = 1024;
constexpr std::byte kPoison{0xff};  // a NaN in every floating type

/// Of a strided value: from its first element to behind its last.
std::int64_t reach_of(const Layout& layout) {
  std::int64_t reach = 1;
  for (int axis = 0; axis < layout.shape.rank(); ++axis) {
    if (layout.shape[axis] == 0) return 0;
    reach += (layout.shape[axis] - 1) * layout.strides[axis];
  }
  return reach;
}

/// Strides in a random order of the axes, with gaps now and then.
Strides random_strides(std::mt19937& random, const Shape& shape) {
  Dims order;
  for (int axis = 0; axis < shape.rank(); ++axis) order.push_back(axis);
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  Strides strides = Strides::filled(shape.rank(), 1);
  std::int64_t step = random() % 4 == 0 ? 2 : 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order[i]);
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
    if (random() % 4 == 0) step += 3;
  }
  return strides;
}

/// Half the distance of 1 to the next number.
double unit_of(DType dtype) {
  return dtype == bf16 ? 0x1p-8 : dtype == f16 ? 0x1p-11 : dtype == f32 ? 0x1p-24 : 0x1p-53;
}

Tensor from_values(const std::vector<double>& values, const Shape& shape) {
  const auto kept = std::make_shared<std::vector<double>>(values);
  return from_memory(static_cast<void*>(kept->data()), shape, f64, kept);
}

/// Every element times 1 + scale * (a standard normal number); as it is without `random`.
Tensor shaken(const Tensor& x, double scale, std::mt19937* random) {
  if (!random) return x;
  std::normal_distribution<double> normal(0, scale);
  std::vector<double> values = x.to_vector<double>();
  for (double& value : values) value *= 1 + normal(*random);
  return from_values(values, x.shape());
}

/// How many products or terms make one element of a node.
double terms_of(const Graph& graph, const Node& node) {
  const auto size = [&](ValueId id) {
    return static_cast<double>(num_elements(graph.type(id).shape));
  };
  if (node.inputs.empty() || size(node.inputs[0]) == 0 || num_elements(node.type.shape) == 0)
    return 1;
  switch (node.op) {
    case Op::matmul: {
      const Shape& left = graph.type(node.inputs[0]).shape;
      return static_cast<double>(left[left.rank() - 1]);
    }
    case Op::conv2d: {
      const Shape& weights = graph.type(node.inputs[1]).shape;
      return size(node.inputs[1]) / static_cast<double>(std::max<std::int64_t>(weights[0], 1));
    }
    default:
      return info(node.op).pattern == Pattern::elementwise
                 ? 1
                 : std::max(1., size(node.inputs[0]) /
                                    static_cast<double>(num_elements(node.type.shape)));
  }
}

/// The median of what elements are off by, squared and relative to their values, squared; 0 without
/// any.
double median_relative(const std::vector<double>& square, const std::vector<double>& values) {
  std::vector<double> relative;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(values[i]) && values[i] != 0)
      relative.push_back(square[i] / (values[i] * values[i]));
  if (relative.empty()) return 0;
  const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(relative.size() / 2);
  std::nth_element(relative.begin(), middle, relative.end());
  return *middle;
}

/// A graph's values in float64; with `random`, shaken as rounding would.
std::vector<Tensor> in_float64(const Graph& graph, const std::map<ValueId, Tensor>& inputs,
                               std::mt19937* random) {
  std::vector<Tensor> values(static_cast<std::size_t>(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    const DType dtype = node.type.dtype;
    if (node.kind != NodeKind::operation) {
      const Tensor x = node.kind == NodeKind::constant ? node.constant : inputs.at(id);
      values[at(id)] = is_floating(dtype) ? x.astype(f64) : x;
      continue;
    }
    const double terms = terms_of(graph, node);
    const bool is_view = info(node.op).pattern == Pattern::view;
    Tensors arguments;
    for (const ValueId input : node.inputs) {
      const DType type = graph.type(input).dtype;
      const bool shakes = !is_view && is_floating(type);
      const double unit = std::min(unit_of(f32), std::max(unit_of(type), unit_of(dtype)));
      // Each operand of a product in tf32 is rounded once.
      const double rounding = node.attrs.flag("tf32", false) ? 0x1p-11 : 0;
      arguments.push_back(
          shakes ? shaken(values[at(input)], std::max(rounding, unit * std::sqrt(terms)), random)
                 : values[at(input)]);
    }
    Attrs attrs = node.attrs;
    if (node.op == Op::astype && is_floating(dtype)) attrs = {{"dtype", f64}};
    // Its definition says what is rounded to float32.
    const bool is_defined = is_quantized(graph, id);
    if (is_defined)
      for (Tensor& x : arguments)
        if (x.dtype() == f64) x = x.astype(f32);
    Tensor result = apply_op(node.op, arguments, attrs);
    if (is_defined) result = result.astype(f64);
    if (!is_view && is_floating(dtype) && node.op != Op::round)
      result = shaken(result, unit_of(dtype), random);
    values[at(id)] = result;
  }
  return values;
}

// How far off results may be for which that is not measured: integers not at all, nor what has bits
// by definition, and numbers that were rounded by a step, where they lie between two integers.
std::optional<double> exact_bound(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  if (is_quantized(graph, id)) return 0;
  if (is_floating(node.type.dtype)) return std::nullopt;
  return node.op == Op::astype && graph.is_op(node.inputs[0], Op::round) ? 1 : 0;
}

}  // namespace

// ---- Placed

Placed::Placed(const Layout& layout, DType dtype)
    : layout_(layout),
      dtype_(dtype),
      bytes_(static_cast<std::size_t>(reach_of(layout) * item_size(dtype))) {
  storage_ = std::make_shared<std::vector<std::byte>>(bytes_ + 2 * kGuard + kAlignment, kPoison);
  const auto address = reinterpret_cast<std::uintptr_t>(storage_->data()) + kGuard;
  begin_ = storage_->data() + kGuard + (kAlignment - address % kAlignment) % kAlignment;
}

Tensor Placed::tensor() const {
  return from_memory(static_cast<void*>(begin_), layout_.shape, dtype_, storage_, layout_.strides);
}

void Placed::poison() { std::fill(storage_->begin(), storage_->end(), kPoison); }

std::string Placed::stray_write() const {
  std::vector<bool> owned(storage_->size(), false);
  const auto before = static_cast<std::size_t>(begin_ - storage_->data());
  const auto item = static_cast<std::size_t>(item_size(dtype_));
  const Shape& shape = layout_.shape;
  for (std::int64_t i = 0; i < num_elements(shape); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * layout_.strides[axis];
      rest /= shape[axis];
    }
    std::fill_n(owned.begin() +
                    static_cast<std::ptrdiff_t>(before + static_cast<std::size_t>(offset) * item),
                item, true);
  }
  for (std::size_t i = 0; i < owned.size(); ++i)
    if (!owned[i] && (*storage_)[i] != kPoison)
      return "a stray write at byte " +
             std::to_string(static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(before));
  return {};
}

// ---- GroupCase

GroupCase::GroupCase(const TensorFunction& function, const Tensors& inputs, std::mt19937* random,
                     Graph (*pass)(const Graph&)) {
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  const Graph traced = trace(function, types);
  laid_ = lay_out(pass ? pass(traced) : traced);
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < laid_.graph.size(); ++id)
    if (is_compute(laid_.graph, id)) nodes.push_back(id);
  const Wiring wires = wiring(laid_.graph);
  root_ = wires.root;
  groups_ = {make_group(laid_.graph, wires, nodes)};
  place(inputs, random);
}

GroupCase::GroupCase(LaidOutGraph laid, std::vector<Group> groups, const Tensors& inputs)
    : laid_(std::move(laid)), groups_(std::move(groups)), root_(wiring(laid_.graph).root) {
  place(inputs, nullptr);
}

void GroupCase::place(const Tensors& inputs, std::mt19937* random) {
  Graph& graph = laid_.graph;
  if (random) {
    for (const ValueId id : graph.inputs())
      laid_.layouts[at(id)].strides = random_strides(*random, graph.type(id).shape);
    for (const ValueId id : group().writes)
      laid_.layouts[at(id)].strides = random_strides(*random, graph.type(id).shape);
    // Views lie where what they show does now; those that cannot keep all as it was planned.
    for (ValueId id = 0; id < graph.size(); ++id) {
      const Node& node = graph[id];
      if (node.kind != NodeKind::operation || is_compute(graph, id)) continue;
      const Layout& source = laid_.layouts[at(node.inputs[0])];
      auto view = info(node.op).view(graph.type(node.inputs[0]), source.strides, node.attrs);
      if (!view) {
        laid_ = lay_out(graph);
        break;
      }
      view->offset += source.offset;
      laid_.layouts[at(id)] = *view;
    }
  }
  const auto keep = [&](ValueId id, const Tensor& value) {
    const Placed& placed =
        memory_.try_emplace(id, laid_.layouts[at(id)], value.dtype()).first->second;
    placed.tensor()(ellipsis) = value;
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) keep(graph.inputs()[i], inputs[i]);
  for (const Group& group : groups_) {
    for (const ValueId id : group.reads)
      if (const ValueId root = root_[at(id)]; graph.is_constant(root) && !memory_.contains(root))
        keep(root, graph[root].constant);
    for (const ValueId id : group.writes)
      memory_.try_emplace(id, laid_.layouts[at(id)], graph.type(id).dtype);
  }
}

Operand GroupCase::operand(ValueId id) {
  const Placed& placed = memory_.at(root_[at(id)]);
  const Layout& layout = laid_.layouts[at(id)];
  const std::int64_t item = item_size(laid_.graph.type(id).dtype);
  return {{placed.data() + layout.offset * item, static_cast<std::size_t>(reach_of(layout) * item)},
          laid_.graph.is_constant(root_[at(id)]),
          false};
}

Tensor GroupCase::view_of(ValueId id) {
  const Layout& layout = laid_.layouts[at(id)];
  const Tensor root = memory_.at(root_[at(id)]).tensor();
  detail::TensorImpl view = detail::impl(root);
  view.type.shape = layout.shape;
  view.strides = layout.strides;
  view.offset += layout.offset;
  return detail::make_tensor(std::move(view));
}

bool GroupCase::accepted(const cuda::Family& family, const cuda::Machine& machine) const {
  return estimate_of(family, laid_, group(), machine).has_value();
}

const std::map<ValueId, GroupCase::Reference>& GroupCase::reference() {
  if (!reference_.empty()) return reference_;
  std::map<ValueId, Tensor> inputs;
  for (const ValueId id : laid_.graph.inputs()) inputs[id] = memory_.at(id).tensor();
  const std::vector<Tensor> exact = in_float64(laid_.graph, inputs, nullptr);
  std::map<ValueId, std::vector<double>> squares;
  for (const Group& group : groups_)
    for (const ValueId id : group.writes) {
      reference_[id].values = exact[at(id)].to_vector<double>();
      squares[id].assign(reference_[id].values.size(), 0);
    }
  constexpr int kSamples = 2;
  std::mt19937 random(7);
  for (int sample = 0; sample < kSamples; ++sample) {
    const std::vector<Tensor> rounded = in_float64(laid_.graph, inputs, &random);
    for (auto& [id, square] : squares) {
      const auto got = rounded[at(id)].to_vector<double>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double off = got[i] - reference_[id].values[i];
        if (std::isfinite(off)) square[i] += off * off / kSamples;
      }
    }
  }
  for (auto& [id, r] : reference_) {
    const DType dtype = laid_.graph.type(id).dtype;
    const std::vector<double>& square = squares[id];
    double mean = 0;
    for (const double x : square) mean += x / static_cast<double>(square.size());
    const double least = dtype == f16 ? 0x1p-24 : 0x1p-149;  // the distance of subnormal numbers
    // Few samples may all fall near an element's exact value: what elements are mostly off by,
    // and what they are in relation to their size, stand in for more of them.
    const double relative = median_relative(square, r.values);
    if (const auto exact = exact_bound(laid_.graph, id)) {
      r.bounds.assign(r.values.size(), *exact);
      continue;
    }
    for (std::size_t i = 0; i < r.values.size(); ++i) {
      const double value = std::isfinite(r.values[i]) ? std::abs(r.values[i]) : 0;
      r.bounds.push_back(unit_of(dtype) * value + least +
                         8 * std::sqrt(square[i] + mean + relative * value * value));
    }
  }
  return reference_;
}

bool GroupCase::run_group(const Group& group, const cuda::Lowered& lowered, const Run& run) {
  std::vector<Operand> operands;
  for (const ValueId id : group.reads) operands.push_back(operand(id));
  for (const ValueId id : group.writes) {
    operands.push_back(operand(id));
    operands.back().is_written = true;
  }
  Tensors packed;
  for (const cuda::Lowered::Packed& p : lowered.packed) {
    Tensors constants;
    for (const int operand : p.operands)
      constants.push_back(view_of(group.reads[static_cast<std::size_t>(operand)]));
    packed.push_back(p.pack(constants));
  }
  try {
    run(lowered, operands, packed);
    return true;
  } catch (const Error& error) {
    ADD_FAILURE() << lowered.description << '\n' << error.what() << '\n' << laid_.graph;
    return false;
  }
}

void GroupCase::compare(const Group& group, const std::string& what) {
  for (const ValueId id : group.writes) {
    const Placed& written = memory_.at(id);
    EXPECT_EQ(written.stray_write(), "") << what;
    const auto got = written.tensor().to_vector<double>();
    const Reference& r = reference().at(id);
    const DType dtype = laid_.graph.type(id).dtype;
    constexpr double kHalfOverflow = 65520;  // halfway beyond the largest float16
    int wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double need = r.values[i];
      if (got[i] == need || (std::isnan(got[i]) && std::isnan(need))) continue;
      const bool is_too_large = dtype == f16 && std::abs(need) + r.bounds[i] >= kHalfOverflow;
      if (is_too_large && std::isinf(got[i]) && (got[i] > 0) == (need > 0)) continue;
      if (!(std::abs(got[i] - need) <= r.bounds[i]) && ++wrong < 4)
        ADD_FAILURE() << what << ": %" << id << ", element " << i << ": got " << got[i] << ", need "
                      << need << " within " << r.bounds[i];
    }
    EXPECT_EQ(wrong, 0) << what << ": wrong elements of " << got.size() << '\n' << laid_.graph;
  }
}

void GroupCase::check(const std::vector<cuda::Lowered>& lowered, const Run& run) {
  for (const Group& group : groups_)
    for (const ValueId id : group.writes) memory_.at(id).poison();
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (!run_group(groups_[i], lowered[i], run)) return;
  for (std::size_t i = 0; i < groups_.size(); ++i) compare(groups_[i], lowered[i].description);
}

namespace {

std::pair<LaidOutGraph, FusionPlan> plan_of(const TensorFunction& function, const Tensors& inputs,
                                            Precision precision, const cuda::Machine& machine) {
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  Graph graph = trace(function, types);
  precision.narrow_images = true;
  precision.folds_norms = machine.device.capability == 90;
  for (const Pass& pass : passes_for(precision)) graph = pass.run(graph);
  const LaidOutGraph laid = lay_out(graph);
  return merge_parallel(laid, fuse(propose_parallel(laid), cuda::cuda_cost(machine)));
}

}  // namespace

Planned::Planned(const TensorFunction& function, const Tensors& inputs, const Precision& precision,
                 const cuda::Machine& machine)
    : Planned(plan_of(function, inputs, precision, machine), inputs, machine) {}

Planned::Planned(const Laid& plan, const Tensors& inputs, const cuda::Machine& machine)
    : groups(plan.first, plan.second.groups, inputs) {
  const LaidOutGraph& laid = groups.laid();
  for (const Group& group : groups.groups()) {
    lowered.push_back(cuda::lower_group(laid, group, machine));
    if (!lowered.back().on_host) continue;
    for (const ValueId id : group.nodes) on_host += std::string(info(laid.graph[id].op).name) + " ";
    on_host += "\n";
  }
}

namespace {

void expect_names(const cuda::Lowered& lowered) {
  for (const cuda::Call& call : lowered.calls)
    EXPECT_TRUE(cuda::follows_grammar(call.entry)) << call.entry;
}

// A typical GPU of this capability, whose kernels know their problem's extents, and one whose
// kernels take any. With TENSOR_EMULATED_FORMS=one only one of them, which the seed says: to
// compile the kernels takes most of a test's time.
std::vector<cuda::Machine> forms(int capability) {
  static const bool has_one = std::getenv("TENSOR_EMULATED_FORMS") != nullptr;
  static std::mt19937 draw(static_cast<unsigned>(check::seed()));
  const cuda::Machine machine = cuda::machine_of(cuda::typical_device(capability));
  std::vector<cuda::Machine> machines;
  for (const bool any_extent : {false, true})
    machines.emplace_back(machine).any_extent = any_extent;
  if (has_one) machines.erase(machines.begin() + static_cast<std::ptrdiff_t>(draw() % 2));
  return machines;
}

}  // namespace

void expect_plan_emulated(const TensorFunction& function, const Tensors& inputs,
                          const Precision& precision, int capability) {
  for (const cuda::Machine& machine : forms(capability)) {
    Planned plan(function, inputs, precision, machine);
    EXPECT_EQ(plan.on_host, "");
    for (const cuda::Lowered& lowered : plan.lowered) expect_names(lowered);
    plan.groups.check(plan.lowered, [&](const cuda::Lowered& l, std::span<const Operand> operands,
                                        std::span<const Tensor> packed) {
      emulate(l, operands, packed, {capability, {1, machine.device.shared_block_bytes}});
    });
  }
}

void expect_emulated(GroupCase& group, const GroupCase::Lower& lower, int capability, int seeds) {
  for (const cuda::Machine& machine : forms(capability)) {
    const cuda::Lowered lowered = lower(group.laid(), group.group(), machine);
    for (int seed = 0; seed < seeds; ++seed)
      group.check(lowered, [&](const cuda::Lowered& l, std::span<const Operand> operands,
                               std::span<const Tensor> packed) {
        emulate(l, operands, packed,
                {capability, {static_cast<unsigned>(seed), machine.device.shared_block_bytes}});
      });
  }
}

void expect_emulated(GroupCase& group, const cuda::Family& family, int capability, int seeds) {
  const cuda::Machine machine = cuda::machine_of(cuda::typical_device(capability));
  const auto estimate = estimate_of(family, group.laid(), group.group(), machine);
  if (!estimate) {
    ADD_FAILURE() << family.name << " declines\n" << group.laid().graph;
    return;
  }
  EXPECT_GT(*estimate, 0);
  const GroupCase::Lower lower = [&](const LaidOutGraph& laid, const Group& g,
                                     const cuda::Machine& on) {
    cuda::Lowered lowered = built_by(family, laid, g, on);
    expect_names(lowered);
    return lowered;
  };
  expect_emulated(group, lower, capability, seeds);
}

}  // namespace tensor::emulator

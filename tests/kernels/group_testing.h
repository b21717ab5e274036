// A function on tensors as one group of one family, on operands of any layout, against the
// reference run node by node. Written memory is poisoned, and whatever a kernel has no business
// with must stay so.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "src/core/storage.h"
#include "src/kernels/cpu/kernel.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/families.h"
#include "tests/seed.h"

namespace tensor::testing {

using Tensors = std::vector<Tensor>;

/// Random choices from the seed of the run.
inline std::mt19937& random_engine() {
  static std::mt19937 engine(static_cast<unsigned>(check::seed()));
  return engine;
}
/// From 0 to n - 1.
inline int pick(int n) { return static_cast<int>(random_engine()() % static_cast<unsigned>(n)); }
/// Normal numbers, rounded to the type.
inline Tensor normal(const Shape& shape, DType dtype = f32, double mean = 0) {
  return Generator(random_engine()()).normal(shape, mean).astype(dtype);
}

inline const cpu::Family& family(std::string_view name) {
  for (const cpu::Family& f : cpu::cpu_families())
    if (f.name == name) return f;
  internal_error("test", "no family ", name);
}

/// All operators of a graph as one group.
inline Group whole_group(const Graph& graph) {
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (is_compute(graph, id)) nodes.push_back(id);
  return make_group(graph, wiring(graph), nodes);
}

inline Graph graph_of(const TensorFunction& f, const Tensors& inputs) {
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  return trace(f, types);
}

/// Whether a family takes the function as one group.
inline bool accepts(std::string_view name, const TensorFunction& f, const Tensors& inputs) {
  const Graph graph = graph_of(f, inputs);
  return estimate_of(family(name), lay_out(graph), whole_group(graph), cpu::this_machine())
      .has_value();
}

/// Memory of a layout between guards, filled with a byte that is a NaN in every floating type.
class Guarded {
 public:
  Guarded(const Layout& layout, DType dtype) : layout_(layout), dtype_(dtype) {
    std::int64_t reach = 1;
    for (int axis = 0; axis < layout.shape.rank(); ++axis)
      reach += std::max<std::int64_t>(layout.shape[axis] - 1, 0) * layout.strides[axis];
    bytes_ = std::make_shared<std::vector<std::byte>>(
        static_cast<std::size_t>(reach * item_size(dtype)) + 2 * kGuard, std::byte{0xff});
  }
  std::byte* data() const { return bytes_->data() + kGuard; }
  Tensor tensor() const {
    return from_memory(static_cast<void*>(data()), layout_.shape, dtype_, bytes_, layout_.strides);
  }
  /// Every byte that belongs to no element is as it was.
  void expect_untouched(const std::string& what) const {
    std::vector<bool> owned(bytes_->size(), false);
    const Tensor all = tensor();
    const Shape& shape = layout_.shape;
    for (std::int64_t i = 0; i < all.size(); ++i) {
      std::int64_t rest = i, offset = 0;
      for (int axis = shape.rank() - 1; axis >= 0; --axis) {
        offset += rest % shape[axis] * layout_.strides[axis];
        rest /= shape[axis];
      }
      for (std::int64_t byte = 0; byte < item_size(dtype_); ++byte)
        owned[static_cast<std::size_t>(offset * item_size(dtype_) + byte) + kGuard] = true;
    }
    for (std::size_t i = 0; i < owned.size(); ++i)
      if (!owned[i]) {
        ASSERT_EQ((*bytes_)[i], std::byte{0xff}) << what << ": stray write at byte " << i;
      }
  }

 private:
  static constexpr std::size_t kGuard = 256;
  Layout layout_;
  DType dtype_;
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

/// Strides in a random order of the axes, with gaps now and then.
inline Strides random_strides(std::mt19937& random, const Shape& shape, bool gaps) {
  Dims order;
  for (int axis = 0; axis < shape.rank(); ++axis) order.push_back(axis);
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  Strides strides = Strides::filled(shape.rank(), 1);
  std::int64_t step = gaps && random() % 4 == 0 ? 2 : 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order[i]);
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
    if (gaps && random() % 4 == 0) step += 3;
  }
  return strides;
}

struct GroupRun {
  Graph graph;
  std::string kernel;
  Tensors got, expected;
};

/// Runs `f` as one group of a family. Inputs and outputs get random layouts (`random` nullptr: the
/// ones they have, and row-major outputs); threads 1 to 3; half of the times any of the schedules
/// that the family may try. `threads` where it is given.
inline GroupRun run_group(std::string_view name, const TensorFunction& f, const Tensors& inputs,
                          std::mt19937* random, int threads = 0) {
  GroupRun result{graph_of(f, inputs), {}, {}, {}};
  LaidOutGraph laid = lay_out(result.graph);
  Group group = whole_group(laid.graph);
  std::vector<Guarded> memory;
  Tensors placed;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = laid.graph.inputs()[i];
    Layout& layout = laid.layouts[static_cast<std::size_t>(id)];
    if (random) layout.strides = random_strides(*random, layout.shape, true);
    memory.emplace_back(layout, inputs[i].dtype());
    placed.push_back(memory.back().tensor());
    placed.back()(ellipsis) = inputs[i];
  }
  for (const ValueId id : group.writes) {
    Layout& layout = laid.layouts[static_cast<std::size_t>(id)];
    if (random && random->operator()() % 2)
      layout.strides = random_strides(*random, layout.shape, true);
  }
  // Views of the inputs lie where the inputs do now.
  for (ValueId id = 0; id < laid.graph.size(); ++id) {
    const Node& node = laid.graph[id];
    if (node.kind != NodeKind::operation || is_compute(laid.graph, id)) continue;
    const Layout& source = laid.layouts[static_cast<std::size_t>(node.inputs[0])];
    auto view = info(node.op).view(laid.graph.type(node.inputs[0]), source.strides, node.attrs);
    if (!view) {  // no view of this layout: keep the planned one
      if (random) return run_group(name, f, inputs, nullptr);
      continue;
    }
    view->offset += source.offset;
    laid.layouts[static_cast<std::size_t>(id)] = *view;
  }

  const cpu::Machine machine = cpu::this_machine(threads > 0 ? threads
                                                 : random    ? 1 + static_cast<int>((*random)() % 3)
                                                             : 2);
  const auto estimate = estimate_of(family(name), laid, group, machine);
  if (!estimate) {
    ADD_FAILURE() << name << " declines\n" << laid.graph;
    return result;
  }
  EXPECT_GT(*estimate, 0);
  if (random && (*random)() % 2)
    if (const auto space = space_of(family(name), laid, group, machine)) {
      const std::vector<Schedule> all = space->all();
      group.schedule = all[(*random)() % all.size()].text();
    }
  const auto kernel = built_by(family(name), laid, group, machine);
  result.kernel = kernel->description() + (group.schedule.empty() ? "" : ", " + group.schedule);

  std::vector<std::byte*> operands;
  const Wiring wires = wiring(laid.graph);
  for (const ValueId id : group.reads) {
    const ValueId root = wires.root[static_cast<std::size_t>(id)];
    const auto& in = laid.graph.inputs();
    const auto place = std::find(in.begin(), in.end(), root);
    std::byte* base = place == in.end()
                          ? detail::stored(laid.graph[root].constant).first()
                          : memory[static_cast<std::size_t>(place - in.begin())].data();
    operands.push_back(base + laid.layouts[static_cast<std::size_t>(id)].offset *
                                  item_size(laid.graph.type(id).dtype));
  }
  std::vector<Guarded> written;
  for (const ValueId id : group.writes) {
    written.emplace_back(laid.layouts[static_cast<std::size_t>(id)], laid.graph.type(id).dtype);
    operands.push_back(written.back().data());
  }
  // Scratch memory is as large as it says, 64-byte aligned, and may hold anything.
  std::vector<std::byte> scratch(kernel->scratch_bytes() + 128, std::byte{0xff});
  auto* aligned = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  kernel->run(operands, aligned);
  for (std::byte* p = aligned + kernel->scratch_bytes(); p < scratch.data() + scratch.size(); ++p)
    EXPECT_EQ(*p, std::byte{0xff}) << result.kernel << " writes beyond its scratch";

  const std::vector<ValueId> outputs = group.writes;
  Graph whole = laid.graph;
  whole.set_outputs(outputs);
  result.expected = interpret(whole, placed);
  for (std::size_t i = 0; i < written.size(); ++i) {
    written[i].expect_untouched(std::string(name));
    result.got.push_back(written[i].tensor());
  }
  return result;
}

/// |got - expected| <= relative * max(|expected|, scale) for every element; NaN and infinities must
/// agree. 16-bit types may differ by one unit in the last place more, where two results round
/// apart. With `relative` 0 everything must be equal.
inline void expect_close(const GroupRun& run, double relative, double scale = 0) {
  ASSERT_EQ(run.got.size(), run.expected.size());
  for (std::size_t k = 0; k < run.got.size(); ++k) {
    ASSERT_EQ(run.got[k].type(), run.expected[k].type());
    const auto got = run.got[k].to_vector<double>(), expected = run.expected[k].to_vector<double>();
    double unit = 0, least = 0;  // in the last place, of 1 and of subnormal numbers
    if (relative > 0 && run.got[k].dtype() == bf16) unit = 0x1p-7;
    if (relative > 0 && run.got[k].dtype() == f16) unit = 0x1p-10, least = 0x1p-24;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
      if (got[i] == expected[i]) continue;
      const double bound = (relative + unit) * std::max(std::abs(expected[i]), scale) + least;
      ASSERT_TRUE(std::abs(got[i] - expected[i]) <= bound)
          << run.kernel << " output " << k << " element " << i << ": got " << got[i] << ", need "
          << expected[i] << '\n'
          << run.graph;
    }
  }
}

}  // namespace tensor::testing

#include "src/tune/reference.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <sstream>

#include "src/core/view.h"
#include "src/ops/pack.h"
#include "src/runtime/rounding.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

constexpr std::uint64_t kSeed = 20231;
constexpr std::int64_t kLine = 1024;        // bytes: what kernels may count on of an address
constexpr std::int64_t kDrawn = 1'048'583;  // elements, a prime number

// Offsets of the lowest and the highest element, counted from the first one.
std::pair<std::int64_t, std::int64_t> reach(const Layout& layout) {
  std::int64_t low = 0, high = 0;
  for (int axis = 0; axis < layout.shape.rank(); ++axis) {
    const std::int64_t span = (layout.shape[axis] - 1) * layout.strides[axis];
    (span < 0 ? low : high) += span;
  }
  return {low, high};
}

// Of many, what is drawn is repeated. Its length is prime, so that no two rows are the same.
Tensor random_numbers(Generator& random, std::int64_t count, DType dtype) {
  if (count > kDrawn) {
    const Tensor drawn = random_numbers(random, kDrawn, dtype), result = empty({count}, dtype);
    const auto size = static_cast<std::size_t>(drawn.nbytes());
    const std::span<std::byte> all(detail::stored(result).first(),
                                   static_cast<std::size_t>(result.nbytes()));
    for (std::size_t at = 0; at < all.size(); at += size)
      std::memcpy(&all[at], detail::stored(drawn).first(), std::min(size, all.size() - at));
    return result;
  }
  if (is_floating(dtype)) return random.normal({count}, 0, 1, dtype);
  // Indices of whatever they index: axes of two at least are the rule.
  return random.randint(0, 2, {count}).astype(dtype);
}

// `make` gives the memory of so many elements.
template <class F>
OperandBlock block(const Layout& layout, DType dtype, F&& make) {
  const auto [low, high] = reach(layout);
  const std::int64_t before = layout.offset % (kLine / item_size(dtype));
  OperandBlock result;
  result.memory = make(before + high - low + 1);
  detail::TensorImpl value = detail::impl(result.memory);
  value.type = {layout.shape, dtype};
  value.strides = layout.strides;
  value.offset += before - low;
  value.overlapping = num_elements(layout.shape) > high - low + 1;
  result.value = detail::make_tensor(std::move(value));
  return result;
}

}  // namespace

std::span<std::byte> OperandBlock::bytes() const {
  return {detail::stored(memory).first(), static_cast<std::size_t>(memory.nbytes())};
}
std::byte* OperandBlock::first() const { return detail::stored(value).first(); }
std::ptrdiff_t OperandBlock::first_at() const { return first() - bytes().data(); }

void poison(std::span<std::byte> memory) { std::memset(memory.data(), 0xff, memory.size()); }

namespace {

// Sums that a layer_norm is given are those of what it normalises.
void set_row_sums(const Isolated& problem, std::vector<OperandBlock>& reads) {
  const Graph& graph = problem.laid.graph;
  const auto place = [&](ValueId id) {
    const auto& all = problem.group.reads;
    return static_cast<std::size_t>(std::find(all.begin(), all.end(), id) - all.begin());
  };
  const std::function<Tensor(ValueId)> value = [&](ValueId id) -> Tensor {
    if (place(id) < reads.size()) return reads[place(id)].value;
    std::vector<Tensor> inputs;
    for (const ValueId input : graph[id].inputs) inputs.push_back(value(input));
    return apply_op(graph[id].op, inputs, graph[id].attrs);
  };
  for (const ValueId id : problem.group.nodes) {
    const auto& inputs = graph[id].inputs;
    if (!graph.is_op(id, Op::layer_norm) || inputs.size() < 4) continue;
    if (place(inputs[3]) == reads.size()) continue;  // made by the group itself
    const Tensor sums = apply_op(Op::row_sums, {value(inputs[0])});
    convert_elements(const_view(sums), mutable_view(reads[place(inputs[3])].value));
  }
}

std::vector<OperandBlock> reads_of(const Isolated& problem) {
  const Graph& graph = problem.laid.graph;
  const Wiring wires = wiring(graph);
  const std::function<Tensor(ValueId)> constant = [&](ValueId id) -> Tensor {
    if (graph.is_constant(id)) return graph[id].constant;
    return apply_op(graph[id].op, {constant(graph[id].inputs[0])}, graph[id].attrs);
  };
  Generator random(kSeed);
  std::vector<OperandBlock> reads;
  for (const ValueId id : problem.group.reads) {
    const DType dtype = graph.type(id).dtype;
    const bool is_constant = graph.is_constant(wires.root[at(id)]);
    reads.push_back(block(problem.laid.layouts[at(id)], dtype, [&](std::int64_t count) {
      return is_constant ? zeros({count}, dtype) : random_numbers(random, count, dtype);
    }));
    reads.back().is_constant = is_constant;
    if (!is_constant) continue;
    const Tensor value = constant(id);
    const ConstView from = const_view(value);
    info(Op::copy).eval(std::span(&from, 1), {}, mutable_view(reads.back().value));
  }
  set_row_sums(problem, reads);
  return reads;
}

std::vector<OperandBlock> with_writes(const Isolated& problem, std::vector<OperandBlock> reads) {
  for (const ValueId id : problem.group.writes) {
    const DType dtype = problem.laid.graph.type(id).dtype;
    reads.push_back(block(problem.laid.layouts[at(id)], dtype,
                          [&](std::int64_t count) { return empty({count}, dtype); }));
    poison(reads.back().bytes());
  }
  return reads;
}

}  // namespace

std::vector<OperandBlock> operands_of(const Isolated& problem) {
  return with_writes(problem, reads_of(problem));
}

Reference::Reference(const Isolated& problem, double most_effort)
    : problem_(problem), reads_(reads_of(problem)), slices_(Slices::of(problem, most_effort)) {
  const Graph& graph = problem.laid.graph;
  const Group& group = problem.group;
  std::vector<Tensor> values(at(graph.size()));
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const ValueId id = group.reads[i];
    values[at(id)] = slices_ ? slices_->taken(id, reads_[i].value) : reads_[i].value;
  }
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (values[at(id)].defined()) continue;
    if (node.kind == NodeKind::input) internal_error("tune", "a group does not read its input");
    if (node.kind == NodeKind::constant) {
      values[at(id)] = node.constant;
      continue;
    }
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(values[at(input)]);
    values[at(id)] =
        apply_op(node.op, inputs, slices_ ? slices_->attrs(id, node.attrs) : node.attrs);
  }
  for (const ValueId id : group.writes)
    expected_.push_back({values[at(id)], largest_magnitude(values[at(id)])});
  bound_ = rounding_bound(graph, group, [&](ValueId id) { return values[at(id)]; });
}

std::vector<OperandBlock> Reference::operands() const { return with_writes(problem_, reads_); }

namespace {

// `error` and `bound` are relative to the largest.
std::string text_of_fault(double error, double bound, std::string_view than) {
  std::ostringstream text;
  text << "wrong result: differs " << than << "by " << error
       << " of the largest, rounding explains " << bound;
  return text.str();
}

double relative(double difference, double largest) {
  return difference == 0 ? 0 : difference / std::max(largest, std::numeric_limits<double>::min());
}

}  // namespace

std::string Reference::fault_of_known(std::span<const OperandBlock> operands) const {
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const auto& [expected, largest] = expected_[i];
    const Tensor& got = writes(operands)[i].value;
    double difference = 0;
    if (!slices_) difference = largest_difference(got, expected);
    for (std::size_t k = 0; slices_ && k < slices_->indices().size(); ++k)
      difference = std::max(difference, largest_difference(got(slices_->indices()[k]),
                                                           expected(static_cast<std::int64_t>(k))));
    const double error = relative(difference, largest);
    if (error > bound_) return text_of_fault(error, bound_, "");
  }
  return {};
}

void Reference::trust(const Trusted& trusted) const {
  if (!trusted) internal_error("tune", "has a reference of slices, and no kernel for the rest");
  std::vector<OperandBlock> operands = trusted();
  if (const std::string fault = fault_of_known(operands); !fault.empty())
    fail("tune", "the kernel that others are compared with has a ", fault);
  for (const OperandBlock& write : writes(operands))
    trusted_.push_back({write.value, largest_magnitude(write.value)});
}

std::string Reference::fault(std::span<const OperandBlock> operands, const Trusted& trusted) const {
  if (std::string known = fault_of_known(operands); !known.empty() || is_whole()) return known;
  std::call_once(trusts_, [&] { trust(trusted); });
  for (std::size_t i = 0; i < trusted_.size(); ++i) {
    const auto& [value, largest] = trusted_[i];
    const double error = relative(largest_difference(writes(operands)[i].value, value), largest);
    // Each of the two may be off by the bound.
    if (error > 2 * bound_) return text_of_fault(error, 2 * bound_, "from level 0's kernel ");
  }
  return {};
}

}  // namespace tensor

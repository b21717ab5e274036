#include "src/tune/reference.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "src/core/view.h"
#include "src/ops/pack.h"
#include "src/runtime/rounding.h"
#include "tensor/tensor.h"
#include "tensor/text.h"

namespace tensor {
namespace {

constexpr std::uint64_t kInputSeed = 20231;
// Elements that are drawn; of more they are repeated. A prime number, so that no two rows are the
// same.
constexpr std::int64_t kDrawn = 1'048'583;

// Offsets of the lowest and the highest element, counted from the first one.
std::pair<std::int64_t, std::int64_t> reach(const Shape& shape, const Strides& strides) {
  std::int64_t low = 0, high = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t span = (shape[axis] - 1) * strides[axis];
    (span < 0 ? low : high) += span;
  }
  return {low, high};
}

// Of many, the first ones: a period.
Tensor random_numbers(Generator& random, std::int64_t count, DType dtype) {
  if (count > kDrawn) {
    const Tensor drawn = random_numbers(random, kDrawn, dtype), result = empty({count}, dtype);
    std::memcpy(detail::stored(result).first(), detail::stored(drawn).first(),
                static_cast<std::size_t>(drawn.nbytes()));
    return result;
  }
  if (is_floating(dtype)) return random.normal({count}, 0, 1, dtype);
  // Indices of whatever they index: axes of two at least are the rule.
  return random.randint(0, 2, {count}).astype(dtype);
}

// `make` gives the memory of so many elements.
template <class F>
OperandBlock block(const Layout& layout, DType dtype, F&& make) {
  const auto [low, high] = reach(layout.shape, layout.strides);
  const std::int64_t before = layout.offset % (kAddressLine / item_size(dtype));
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

ByteRange OperandBlock::range_of(const Tensor& part) const {
  const ConstView view = const_view(part);
  if (part.size() == 0) return {};
  const auto [low, high] = reach(view.shape, view.strides);
  const std::int64_t at = view.data - bytes().data(), size = item_size(view.dtype);
  return {at + low * size, at + (high + 1) * size};
}

void OperandBlock::complete(ByteRange range) const {
  if (period == 0) return;
  std::byte* const begin = bytes().data();
  for (std::int64_t at = std::max(range.begin, period); at < range.end;) {
    const std::int64_t from = at % period, count = std::min(range.end - at, period - from);
    std::memcpy(begin + at, begin + from, static_cast<std::size_t>(count));
    at += count;
  }
}

namespace {

// The sums of layer_norm_by_sums are those of what it normalises.
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
    if (!graph.is_op(id, Op::layer_norm_by_sums)) continue;
    if (place(inputs[3]) == reads.size()) continue;  // made by the group itself
    for (const OperandBlock& read : reads) read.complete(read.all());
    const Tensor sums = apply_op(Op::row_sums, {value(inputs[0])});
    OperandBlock& given = reads[place(inputs[3])];
    convert_elements(const_view(sums), mutable_view(given.value));
    given.period = 0;
  }
}

std::vector<OperandBlock> reads_of(const Isolated& problem) {
  const Graph& graph = problem.laid.graph;
  const Wiring wires = wiring(graph);
  const std::function<Tensor(ValueId)> constant = [&](ValueId id) -> Tensor {
    if (graph.is_constant(id)) return graph[id].constant;
    return apply_op(graph[id].op, {constant(graph[id].inputs[0])}, graph[id].attrs);
  };
  Generator random(kInputSeed);
  std::vector<OperandBlock> reads;
  for (const ValueId id : problem.group.reads) {
    const DType dtype = graph.type(id).dtype;
    const bool is_constant = graph.is_constant(wires.root[at(id)]);
    reads.push_back(block(problem.laid.layouts[at(id)], dtype, [&](std::int64_t count) {
      return is_constant ? zeros({count}, dtype) : random_numbers(random, count, dtype);
    }));
    reads.back().is_constant = is_constant;
    if (!is_constant) {
      const std::int64_t period = kDrawn * item_size(dtype);
      if (reads.back().all().size() > period) reads.back().period = period;
      continue;
    }
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
  }
  return reads;
}

std::vector<OperandBlock> with_poison(const Isolated& problem, std::vector<OperandBlock> operands) {
  for (std::size_t i = problem.group.reads.size(); i < operands.size(); ++i)
    std::memset(operands[i].bytes().data(), kPoison, operands[i].bytes().size());
  return operands;
}

}  // namespace

std::vector<OperandBlock> operands_of(const Isolated& problem) {
  std::vector<OperandBlock> reads = reads_of(problem);
  for (const OperandBlock& read : reads) read.complete(read.all());
  return with_poison(problem, with_writes(problem, std::move(reads)));
}

Reference::Reference(const Isolated& problem, double most_effort)
    : problem_(problem), reads_(reads_of(problem)), slices_(Slices::of(problem, most_effort)) {
  const Graph& graph = problem.laid.graph;
  const Group& group = problem.group;
  std::vector<Tensor> values(at(graph.size()));
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    const ValueId id = group.reads[i];
    complete_known(reads_[i], slices_ && slices_->varies(id));
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
    expected_.push_back(
        {values[at(id)], largest_magnitude(values[at(id)]), rounding_step(graph, id)});
  bound_ = rounding_bound(graph, group, [&](ValueId id) { return values[at(id)]; });
}

// What of a read the reference is calculated from.
void Reference::complete_known(const OperandBlock& read, bool varies) const {
  if (!varies) return read.complete(read.all());
  for (const std::int64_t index : slices_->indices())
    read.complete(read.range_of(read.value(index)));
}

std::vector<OperandBlock> Reference::operands() const {
  std::call_once(completes_, [&] {
    for (const OperandBlock& read : reads_) read.complete(read.all());
  });
  return with_poison(problem_, with_writes(problem_, reads_));
}

std::vector<OperandBlock> Reference::outlines() const { return with_writes(problem_, reads_); }

std::vector<ByteRange> Reference::known(std::span<const OperandBlock> operands,
                                        std::size_t write) const {
  const OperandBlock& block = writes(operands)[write];
  if (!slices_) return {block.all()};
  std::vector<ByteRange> ranges;
  for (const std::int64_t index : slices_->indices())
    ranges.push_back(block.range_of(block.value(index)));
  return ranges;
}

namespace {

// `error` and `bound` are relative to the largest.
std::string text_of_fault(double error, double bound, std::string_view than) {
  TextWriter text;
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
    const auto& [expected, largest, step] = expected_[i];
    const Tensor& got = writes(operands)[i].value;
    double difference = 0;
    if (!slices_) difference = largest_difference(got, expected);
    for (std::size_t k = 0; slices_ && k < slices_->indices().size(); ++k)
      difference = std::max(difference, largest_difference(got(slices_->indices()[k]),
                                                           expected(static_cast<std::int64_t>(k))));
    const double error = relative(std::max(difference - step, 0.0), largest);
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
    trusted_.push_back({write.value, largest_magnitude(write.value), 0});
}

std::string Reference::fault(std::span<const OperandBlock> operands, const Trusted& trusted) const {
  if (std::string known = fault_of_known(operands); !known.empty() || is_whole()) return known;
  std::call_once(trusts_, [&] { trust(trusted); });
  for (std::size_t i = 0; i < trusted_.size(); ++i) {
    const Expected& other = trusted_[i];
    const double difference = largest_difference(writes(operands)[i].value, other.value);
    std::string fault = fault_beside_trusted(i, difference, other.largest);
    if (!fault.empty()) return fault;
  }
  return {};
}

std::string Reference::fault_beside_trusted(std::size_t write, double difference,
                                            double largest) const {
  // Each of the two may be off by the bound, but by a step one of them only.
  const double more = std::max(difference - expected_[write].step, 0.0);
  const double error = relative(more, largest), bound = 2 * bound_;
  return error > bound ? text_of_fault(error, bound, "from level 0's kernel ") : "";
}

}  // namespace tensor

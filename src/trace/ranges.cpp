#include "src/trace/ranges.h"

#include <algorithm>
#include <cmath>

namespace tensor {
namespace {

// The most elements of a constant that are looked at: positions are few, weights are many.
constexpr std::int64_t kMostElements = 1 << 16;

Range of_constant(const Tensor& x) {
  const Kind kind = kind_of(x.dtype());
  const bool is_looked_at = x.size() == 1 || (kind == Kind::integer && x.size() <= kMostElements);
  if (x.size() == 0 || !is_looked_at || x.device().is_cuda()) return {};
  const std::vector<double> elements = x.to_vector<double>();
  const auto [least, most] = std::ranges::minmax_element(elements);
  return {*least, *most};
}

// All numbers of a type.
Range range_of(DType dtype) {
  if (is_floating(dtype)) return {};
  if (dtype == boolean) return {0, 1};
  if (dtype == u8) return {0, 255};
  const double half = std::ldexp(1.0, static_cast<int>(8 * item_size(dtype)) - 1);
  return {-half, half - 1};  // of 64 bits 2^63, to which that is rounded
}

// What a type cannot hold became another number of it.
Range within(DType dtype, const Range& range) {
  const Range all = range_of(dtype);
  return range.least >= all.least && range.most <= all.most ? range : all;
}

Range both(const Range& a, const Range& b) {
  return {std::min(a.least, b.least), std::max(a.most, b.most)};
}

Range product(const Range& a, const Range& b) {
  const auto times = [](double x, double y) { return x == 0 || y == 0 ? 0 : x * y; };
  const auto [least, most] = std::minmax({times(a.least, b.least), times(a.least, b.most),
                                          times(a.most, b.least), times(a.most, b.most)});
  return {least, most};
}

// Of truth: what is always true has the least 1.
Range decided(bool is_true, bool is_false) { return {is_true ? 1.0 : 0.0, is_false ? 0.0 : 1.0}; }

Range of_operation(const Graph& graph, const Node& node, const std::vector<Range>& known) {
  const auto in = [&](std::size_t i) { return known[at(node.inputs[i])]; };
  const auto type = [&](std::size_t i) -> const TensorType& { return graph.type(node.inputs[i]); };
  // NaN is neither less nor more, so numbers that may be NaN decide nothing.
  const auto is_exact = [&] { return !is_floating(type(0).dtype); };
  switch (node.op) {
    case Op::maximum:
      return {std::max(in(0).least, in(1).least), std::max(in(0).most, in(1).most)};
    case Op::minimum:
      return {std::min(in(0).least, in(1).least), std::min(in(0).most, in(1).most)};
    case Op::add:
      return {in(0).least + in(1).least, in(0).most + in(1).most};
    case Op::subtract:
      return {in(0).least - in(1).most, in(0).most - in(1).least};
    case Op::multiply:
      return product(in(0), in(1));
    case Op::negative:
      return {-in(0).most, -in(0).least};
    case Op::floor:
      return {std::floor(in(0).least), std::floor(in(0).most)};
    case Op::ceil:
      return {std::ceil(in(0).least), std::ceil(in(0).most)};
    case Op::remainder:  // has the divisor's sign
      return in(1).least > 0 ? Range{0, is_exact() ? in(1).most - 1 : in(1).most} : Range();
    case Op::floor_divide:
      if (in(0).least < 0 || in(1).least < 1) return {};
      return {std::floor(in(0).least / in(1).most), std::floor(in(0).most / in(1).least)};
    case Op::less:
      if (is_exact()) return decided(in(0).most < in(1).least, in(0).least >= in(1).most);
      return {0, 1};
    case Op::greater_equal:
      if (is_exact()) return decided(in(0).least >= in(1).most, in(0).most < in(1).least);
      return {0, 1};
    case Op::logical_and:
    case Op::logical_or:
    case Op::bitwise_and:
    case Op::bitwise_or: {
      if (node.type.dtype != boolean || type(0).dtype != boolean || type(1).dtype != boolean)
        return {};
      const bool is_and = node.op == Op::logical_and || node.op == Op::bitwise_and;
      const auto joined = [&](double a, double b) {
        return is_and ? std::min(a, b) : std::max(a, b);
      };
      return {joined(in(0).least, in(1).least), joined(in(0).most, in(1).most)};
    }
    case Op::where:
      if (in(0).least == 1) return in(1);
      return in(0).most == 0 ? in(2) : both(in(1), in(2));
    case Op::argsort:
    case Op::argmax:
    case Op::argmin: {
      const Shape& from = type(0).shape;
      const std::int64_t places =
          node.op == Op::argsort              ? from[static_cast<int>(node.attrs.integer("axis"))]
          : num_elements(node.type.shape) > 0 ? num_elements(from) / num_elements(node.type.shape)
                                              : 1;
      return {0, static_cast<double>(std::max<std::int64_t>(places - 1, 0))};
    }
    case Op::astype:
    case Op::copy:
    case Op::reshape:
    case Op::broadcast_to:
    case Op::transpose:
    case Op::slice:
    case Op::take:
    case Op::take_along_axis:
    case Op::sort:
    case Op::max:
    case Op::min:
      return in(0);
    case Op::pad:
      return both(in(0), in(1));
    case Op::concatenate: {
      Range all = in(0);
      for (std::size_t i = 1; i < node.inputs.size(); ++i) all = both(all, in(i));
      return all;
    }
    default:
      return {};
  }
}

}  // namespace

std::vector<Range> ranges_of(const Graph& graph) {
  std::vector<Range> known(at(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    const Range found = node.kind == NodeKind::constant    ? of_constant(node.constant)
                        : node.kind == NodeKind::operation ? of_operation(graph, node, known)
                                                           : Range();
    known[at(id)] = within(node.type.dtype, found);
  }
  return known;
}

}  // namespace tensor

#include "src/runtime/rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/core/parallel.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// The reference rounds scores to the 16-bit type before exp, a fused kernel does not: an error of
// eps times the score, which softmax makes one of its weights. Scores that weigh nothing (those
// behind a mask) do not count.
double largest_score(const Graph& graph, const Group& group, const ReferenceOf& value) {
  constexpr double kNoWeight = 0x1p-24;
  double largest = 0;
  for (const ValueId id : group.nodes) {
    if (graph[id].op != Op::softmax) continue;
    const auto scores = value(graph[id].inputs[0]).to_vector<double>(),
               weights = value(id).to_vector<double>();
    for (std::size_t i = 0; i < scores.size(); ++i)
      if (weights[i] > kNoWeight) largest = std::max(largest, std::abs(scores[i]));
  }
  return largest;
}

// How many numbers an operator adds up for one result.
double terms(const Graph& graph, const Node& node) {
  const auto elements = [&](std::size_t i) {
    return static_cast<double>(num_elements(graph.type(node.inputs[i]).shape));
  };
  const double out = std::max(1.0, static_cast<double>(num_elements(node.type.shape)));
  if (node.op == Op::matmul) return static_cast<double>(graph.type(node.inputs[0]).shape.back());
  if (node.op == Op::conv2d)
    return elements(1) / static_cast<double>(std::max<std::int64_t>(1, node.type.shape[1]));
  if (info(node.op).pattern == Pattern::reduction)
    return std::max(elements(0) / out,
                    static_cast<double>(node.type.shape.empty() ? 1 : node.type.shape.back()));
  return 1;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The reference operators calculate in float64, kernels in float32, which sums, squares and
// products of large numbers leave, and squares of tiny ones, unless a norm adds more to them.
bool may_leave_float32(const Graph& graph, const Node& node, const ReferenceOf& value) {
  const auto is_one_of = [&](std::initializer_list<Op> ops) {
    return std::find(ops.begin(), ops.end(), node.op) != ops.end();
  };
  const bool is_product = is_one_of({Op::matmul, Op::conv2d, Op::conv_transpose2d}),
             is_norm = is_one_of({Op::layer_norm, Op::layer_norm_by_sums}),
             is_square = is_norm || is_one_of({Op::var, Op::row_sums}),
             is_sum =
                 is_one_of({Op::sum, Op::mean, Op::cumsum, Op::cumprod, Op::avg_pool2d, Op::prod});
  const DType dtype = node.type.dtype;
  if (!is_floating(dtype) || dtype == f64 || (!is_product && !is_square && !is_sum)) return false;
  const auto elements = static_cast<double>(num_elements(graph.type(node.inputs[0]).shape));
  const double size = largest_magnitude(value(node.inputs[0]));
  constexpr double kMost = std::numeric_limits<float>::max();
  if (is_product) return size * largest_magnitude(value(node.inputs[1])) * elements > kMost;
  if (node.op == Op::prod) return std::pow(std::max(size, 1.0), elements) > kMost;
  const double square = 4 * size * size;
  if (is_norm && std::max(square, node.attrs.number("eps")) < 0x1p-100) return true;
  return (is_square ? square : size) * elements > kMost;
}

// Whether the reference has infinities of f16 where a kernel goes on with the number.
bool left_float16(const Graph& graph, const Group& group, ValueId id, const ReferenceOf& value) {
  return graph.type(id).dtype == f16 &&
         std::find(group.writes.begin(), group.writes.end(), id) == group.writes.end() &&
         !all(isfinite(value(id)));
}

// The same elements with the axes in the order in which they lie in the memory of the first view,
// so that a walk over large ones does not jump.
std::pair<ConstView, ConstView> in_memory_order(const ConstView& one, const ConstView& other) {
  const Dims order = memory_order(one.strides);
  return {permuted(one, order), permuted(other, order)};
}

// The largest of what `of` finds in parts of two views.
template <class Of>
double largest_of_parts(const ConstView& one, const ConstView& other, const Of& of) {
  constexpr std::int64_t kPiece = 1 << 18;  // elements
  const auto longest = std::max_element(one.shape.begin(), one.shape.end());
  const std::int64_t extent = one.rank() == 0 ? 1 : *longest;
  const int axis = static_cast<int>(longest - one.shape.begin());
  const std::int64_t count = std::clamp<std::int64_t>(num_elements(one.shape) / kPiece, 1,
                                                      std::max<std::int64_t>(extent, 1));
  if (count == 1) return of(one, other);
  const auto part = [&](ConstView view, std::int64_t begin, std::int64_t end) {
    view.data += begin * view.strides[axis] * item_size(view.dtype);
    view.shape[axis] = end - begin;
    return view;
  };
  std::vector<double> found(static_cast<std::size_t>(count));
  cpu::parallel_for(threads(), count, [&](std::int64_t i, int) {
    const std::int64_t begin = extent * i / count, end = extent * (i + 1) / count;
    found[static_cast<std::size_t>(i)] = of(part(one, begin, end), part(other, begin, end));
  });
  return *std::max_element(found.begin(), found.end());
}

}  // namespace

double largest_magnitude(const Tensor& x) {
  const auto [view, same] = in_memory_order(const_view(x), const_view(x));
  return dispatch(x.dtype(), [&, &view = view, &same = same]<class Tag>(Tag) {
    using T = typename Tag::type;
    return largest_of_parts(view, same, [](const ConstView& part, const ConstView&) {
      double largest = 0;
      for_each_index(
          part.shape,
          [&](std::int64_t at) {
            const double magnitude = std::abs(convert<double>(part.as<T>()[at]));
            if (magnitude > largest && std::isfinite(magnitude)) largest = magnitude;
          },
          part.strides);
      return largest;
    });
  });
}

double largest_difference(const Tensor& got, const Tensor& expected) {
  if (got.type() != expected.type())
    internal_error("rounding", "compares ", got.type(), " with ", expected.type());
  const auto [a, b] = in_memory_order(const_view(got), const_view(expected));
  if (a.data == b.data && a.strides == b.strides) return 0;
  return dispatch(got.dtype(), [&, &a = a, &b = b]<class Tag>(Tag) {
    using T = typename Tag::type;
    return largest_of_parts(a, b, [](const ConstView& x_part, const ConstView& y_part) {
      double largest = 0;
      for_each_index(
          x_part.shape,
          [&](std::int64_t at_x, std::int64_t at_y) {
            const T &one = x_part.as<T>()[at_x], &other = y_part.as<T>()[at_y];
            if (std::memcmp(&one, &other, sizeof(T)) == 0) return;
            const double x = convert<double>(one), y = convert<double>(other);
            if (std::isnan(x) && std::isnan(y)) return;
            const double difference = x == y ? 0 : std::abs(x - y);
            largest = std::isnan(difference) ? kInfinity : std::max(largest, difference);
          },
          x_part.strides, y_part.strides);
      return largest;
    });
  });
}

double relative_error(const Tensor& got, const Tensor& expected, double step) {
  const double error = std::max(largest_difference(got, expected) - step, 0.0);
  return error == 0
             ? 0
             : error / std::max(largest_magnitude(expected), std::numeric_limits<double>::min());
}

double rounding_step(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  return node.op == Op::astype && !is_floating(node.type.dtype) &&
                 graph.is_op(node.inputs[0], Op::round)
             ? 1
             : 0;
}

double rounding_bound(const Graph& graph, const Group& group, const ReferenceOf& value) {
  double longest = 1, narrow = 0;
  for (const ValueId id : group.nodes) {
    const Node& node = graph[id];
    if (node.type.dtype == bf16) narrow = 0x1p-8;
    if (node.type.dtype == f16 || node.attrs.flag("tf32", false))
      narrow = std::max(narrow, 0x1p-11);
    longest = std::max(longest, terms(graph, node));
    if (may_leave_float32(graph, node, value) || left_float16(graph, group, id, value))
      return kInfinity;
  }
  return 16 * 0x1p-23 * std::sqrt(longest) + (4 + largest_score(graph, group, value)) * narrow;
}

}  // namespace tensor

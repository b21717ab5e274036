#include "src/runtime/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace

double relative_error(const Tensor& got, const Tensor& expected) {
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (a[i] == b[i] || std::isnan(b[i])) continue;
    error = std::max(error, std::abs(a[i] - b[i]));
    if (std::isfinite(b[i])) largest = std::max(largest, std::abs(b[i]));
  }
  for (const double value : b)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return error == 0 ? 0 : error / std::max(largest, std::numeric_limits<double>::min());
}

double rounding_bound(const Graph& graph, const Group& group, const ReferenceOf& value) {
  double longest = 1, narrow = 0;
  for (const ValueId id : group.nodes) {
    const Node& node = graph[id];
    if (node.type.dtype == bf16) narrow = 0x1p-8;
    if (node.type.dtype == f16 || node.attrs.flag("tf32", false))
      narrow = std::max(narrow, 0x1p-11);
    longest = std::max(longest, terms(graph, node));
  }
  return 16 * 0x1p-23 * std::sqrt(longest) + (4 + largest_score(graph, group, value)) * narrow;
}

}  // namespace tensor

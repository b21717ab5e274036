#include "src/kernels/match/attention.h"

#include <algorithm>

#include "src/kernels/match/block_shape.h"

namespace tensor {
namespace {

class Matcher {
 public:
  Matcher(const Graph& graph, const Group& group) : graph_(graph), group_(group) {}

  std::optional<Attention> attention() {
    if (group_.writes.size() != 1 || !find_anchors() || second_ < 0) return std::nullopt;
    Attention a;
    const Node &first = graph_[first_], &second = graph_[second_];
    a.product_dtype = graph_.type(first.inputs[0]).dtype;
    for (const ValueId factor : {first.inputs[1], second.inputs[0], second.inputs[1]})
      if (graph_.type(factor).dtype != a.product_dtype) a.product_dtype.reset();
    a.result = group_.writes.front();
    used_ = {first_, softmax_, second_};
    a.rounding = rounding_of(graph_, a.result);
    if (a.rounding) {
      const std::vector<ValueId> nodes = a.rounding->nodes();
      if (!std::ranges::all_of(nodes, [&](ValueId id) { return is_member(id); }))
        return std::nullopt;
      used_.insert(used_.end(), nodes.begin(), nodes.end());
      a.result = a.rounding->x;
    }
    if (!follow_casts(second.inputs[0], softmax_) || !follow_casts(a.result, second_))
      return std::nullopt;
    double unscaled = 1;
    if (!trace_back(second.inputs[1], a.v, unscaled) || unscaled != 1) return std::nullopt;
    if (!find_weights(a) || graph_.type(a.v).shape.rank() < 2 ||
        num_elements(graph_.type(a.result).shape) == 0 || rows_of(a.scores) != rows_of(a.result))
      return std::nullopt;
    return a;
  }

  std::optional<AttentionWeights> weights() {
    if (!find_anchors() || second_ >= 0) return std::nullopt;
    AttentionWeights a;
    used_ = {first_, softmax_};
    if (!find_after(a) || !find_weights(a) || rows_of(a.scores) != rows_of(softmax_))
      return std::nullopt;
    return a;
  }

 private:
  bool is_member(ValueId id) const {
    return std::binary_search(group_.nodes.begin(), group_.nodes.end(), id);
  }

  bool find_anchors() {
    for (const ValueId id : group_.nodes) {
      const Op op = graph_[id].op;
      ValueId* place = op == Op::softmax            ? &softmax_
                       : op != Op::matmul           ? nullptr
                       : first_ < 0 && softmax_ < 0 ? &first_
                                                    : &second_;
      if (!place) continue;
      if (*place >= 0) return false;
      *place = id;
    }
    if (first_ < 0 || softmax_ < 0) return false;
    const Node& softmax = graph_[softmax_];
    return normalize_axis(softmax.attrs.integer("axis"), softmax.type.shape.rank(), "attention") ==
           softmax.type.shape.rank() - 1;
  }

  // From `id` back to `origin` through casts between floating types. The kernel rounds what
  // the products multiply and the result, nothing else: closer to the exact result than the casts
  // ask for.
  bool follow_casts(ValueId id, ValueId origin) {
    for (; id != origin; id = graph_[id].inputs[0]) {
      if (!is_member(id) || graph_[id].op != Op::astype || !is_float(graph_.type(id).dtype))
        return false;
      used_.push_back(id);
    }
    return true;
  }

  // The factor, when `id` is its other operand times one number.
  std::optional<double> number_times(ValueId id, ValueId& operand) const {
    const Node& node = graph_[id];
    if (node.op != Op::multiply) return std::nullopt;
    for (const std::size_t side : {0, 1}) {
      const ValueId number = node.inputs[side];
      operand = node.inputs[1 - side];
      if (graph_.is_constant(number) && graph_[number].constant.size() == 1 &&
          graph_.type(operand).shape == node.type.shape)
        return graph_[number].constant.item<double>();
    }
    return std::nullopt;
  }

  // From a factor of a product back to what the group reads, all of it floating.
  bool trace_back(ValueId id, ValueId& read, double& scale) {
    while (is_member(id)) {
      if (!is_float(graph_.type(id).dtype)) return false;
      ValueId operand = -1;
      if (graph_[id].op == Op::astype)
        operand = graph_[id].inputs[0];
      else if (const auto factor = number_times(id, operand))
        scale *= *factor;
      else
        return false;
      used_.push_back(id);
      id = operand;
    }
    read = id;
    return is_float(graph_.type(id).dtype) &&
           std::find(group_.reads.begin(), group_.reads.end(), id) != group_.reads.end();
  }

  // Multiplications by a number and casts right after the first product belong to the scale.
  ValueId scaled_scores(double& scale) {
    ValueId scores = first_;
    while (true) {
      std::vector<ValueId> readers;
      for (const ValueId id : group_.nodes)
        if (std::count(graph_[id].inputs.begin(), graph_[id].inputs.end(), scores))
          readers.push_back(id);
      if (readers.size() != 1) return scores;
      ValueId operand = -1;
      if (graph_[readers[0]].op == Op::astype && is_float(graph_.type(readers[0]).dtype))
        operand = scores;
      else if (const auto factor = number_times(readers[0], operand); factor && operand == scores)
        scale *= *factor;
      else
        return scores;
      scores = readers[0];
      used_.push_back(scores);
    }
  }

  Shape rows_of(ValueId id) const {
    Shape shape = graph_.type(id).shape;
    shape.erase(shape.rank() - 1);
    return shape;
  }

  // One matrix of each for every place of the batch axes; queries, keys and values may be
  // broadcast.
  bool find_weights(AttentionWeights& a) {
    const Node& first = graph_[first_];
    a.weights = softmax_;
    if (!trace_back(first.inputs[0], a.q, a.scale) || !trace_back(first.inputs[1], a.k, a.scale))
      return false;
    a.scores = scaled_scores(a.scale);
    for (const ValueId id : {a.q, a.k})
      if (graph_.type(id).shape.rank() < 2) return false;
    const Shape& scores = graph_.type(a.scores).shape;
    return num_elements(scores) > 0 && scores.back() >= 2 && graph_.type(a.q).shape.back() > 0 &&
           find_middle(a);
  }

  // All that does not lead to the softmax.
  bool find_after(AttentionWeights& a) {
    std::vector<ValueId> before = {softmax_};
    const auto leads = [&](ValueId id) { return std::count(before.begin(), before.end(), id) > 0; };
    for (std::size_t i = 0; i < before.size(); ++i)
      for (const ValueId input : graph_[before[i]].inputs)
        if (is_member(input) && !leads(input)) before.push_back(input);
    for (const ValueId id : group_.nodes) {
      if (leads(id)) continue;
      if (info(graph_[id].op).pattern != Pattern::elementwise) return false;
      for (const ValueId input : graph_[id].inputs)
        if (const ValueId root = root_of(graph_, input); root != softmax_ && leads(root))
          return false;
      a.after.push_back(id);
      used_.push_back(id);
    }
    return std::none_of(group_.writes.begin(), group_.writes.end(),
                        [&](ValueId id) { return id != softmax_ && leads(id); });
  }

  // The member that is seen by other axes of the batch: windows of an image, which a mask knows,
  // and those of all images. Otherwise the value itself.
  ValueId before_views(ValueId id) const {
    const auto columns = [&](ValueId value) {
      const Shape& shape = graph_.type(value).shape;
      return shape.rank() > 0 ? shape.back() : 0;
    };
    ValueId member = id;
    while (!is_member(member)) {
      const Node& node = graph_[member];
      const bool is_reshape = node.kind == NodeKind::operation && node.op == Op::reshape;
      if (!is_reshape || columns(node.inputs[0]) != columns(id)) return id;
      member = node.inputs[0];
    }
    return member;
  }

  bool find_middle(AttentionWeights& a) const {
    for (const ValueId id : group_.nodes)
      if (std::find(used_.begin(), used_.end(), id) == used_.end()) a.middle.nodes.push_back(id);
    const ValueId last = before_views(graph_[softmax_].inputs[0]);
    if (a.middle.nodes.empty()) return last == a.scores;
    if (a.middle.nodes.back() != last) return false;
    a.middle.writes = {last};
    for (const ValueId id : a.middle.nodes)
      for (const ValueId seen : graph_[id].inputs) {
        const ValueId input = before_views(seen);
        const bool inside = std::binary_search(a.middle.nodes.begin(), a.middle.nodes.end(), input);
        const bool outside =
            std::find(group_.reads.begin(), group_.reads.end(), input) != group_.reads.end();
        if (!inside && !outside && seen != a.scores) return false;
        if (!inside && !std::count(a.middle.reads.begin(), a.middle.reads.end(), input))
          a.middle.reads.push_back(input);
      }
    const auto shape = block_shape_of(graph_, a.middle, true);
    return shape && !shape->has_rows &&
           std::count(a.middle.reads.begin(), a.middle.reads.end(), a.scores);
  }

  const Graph& graph_;
  const Group& group_;
  ValueId first_ = -1, softmax_ = -1, second_ = -1;
  std::vector<ValueId> used_;
};

}  // namespace

std::optional<Attention> match_attention(const Graph& graph, const Group& group) {
  return Matcher(graph, group).attention();
}

std::optional<AttentionWeights> match_attention_weights(const Graph& graph, const Group& group) {
  return Matcher(graph, group).weights();
}

}  // namespace tensor

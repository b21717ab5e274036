#include "src/trace/places.h"

#include <algorithm>
#include <numeric>

namespace tensor {
namespace {

std::size_t at_axis_of(std::int64_t axis) { return static_cast<std::size_t>(axis); }

// An operator, its operands and its result, whose axes are fresh.
struct Relation {
  Factors& factors;
  const Graph& graph;
  const Node& node;
  const std::vector<AxisFactors>& in;
  AxisFactors& out;

  const Shape& shape(std::size_t i) const { return graph.type(node.inputs[i]).shape; }
  int rank() const { return node.type.shape.rank(); }
  void unite(std::size_t i, int axis, int of_result) const {
    factors.unite(in[i][at_axis_of(axis)], out[at_axis_of(of_result)]);
  }
  void block(std::size_t i, int axis) const { factors.block(in[i][at_axis_of(axis)]); }
  void block_all() const {
    for (const AxisFactors& operand : in)
      for (const Factors::List& axis : operand) factors.block(axis);
    for (const Factors::List& axis : out) factors.block(axis);
  }
};

// The operand's first `count` axes are the result's last ones before `behind` others.
void unite_stretched(const Relation& r, std::size_t i, int count, int behind) {
  for (int axis = 0; axis < count; ++axis) {
    const int there = axis + r.rank() - behind - count;
    if (r.shape(i)[axis] == r.node.type.shape[there]) r.unite(i, axis, there);
  }
}

void relate_elements(const Relation& r) {
  for (std::size_t i = 0; i < r.in.size(); ++i) unite_stretched(r, i, r.shape(i).rank(), 0);
}

void relate_product(const Relation& r) {
  const int left = r.shape(0).rank(), right = r.shape(1).rank();
  unite_stretched(r, 0, left - 2, 2);
  unite_stretched(r, 1, right - 2, 2);
  r.unite(0, left - 2, r.rank() - 2);
  r.unite(1, right - 1, r.rank() - 1);
  r.factors.unite(r.in[0][at_axis_of(left - 1)], r.in[1][at_axis_of(right - 2)]);
}

// Elements along the axes of the first operand that `is_joined` names depend on each other; those
// of others lie in the result as they do there.
template <class IsJoined>
void relate_lines(const Relation& r, const IsJoined& is_joined) {
  for (int axis = 0; axis < r.shape(0).rank(); ++axis)
    is_joined(axis) ? r.block(0, axis) : r.unite(0, axis, axis);
  for (int axis = 0; axis < r.rank(); ++axis)
    if (is_joined(axis)) r.factors.block(r.out[at_axis_of(axis)]);
}

void relate_softmax(const Relation& r) {
  const std::int64_t along = r.node.attrs.integer("axis");
  relate_lines(r, [=](int axis) { return axis == along; });
}

void relate_rows(const Relation& r) {
  relate_lines(r, [last = r.rank() - 1](int axis) { return axis == last; });
  for (std::size_t i = 1; i < r.in.size(); ++i) r.block(i, 0);
}

void relate_folds(const Relation& r) {
  const Dims folded = r.node.attrs.dims("axis");
  const bool keeps = r.node.attrs.flag("keepdims");
  for (int axis = 0, there = 0; axis < r.shape(0).rank(); ++axis) {
    const bool is_folded = folded.contains(axis);
    is_folded ? r.block(0, axis) : r.unite(0, axis, there);
    there += keeps || !is_folded;
  }
}

Factors::List side_by_side(const AxisFactors& axes) {
  Factors::List all;
  for (const Factors::List& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
  return all;
}

void relate_reshaped(const Relation& r) {
  r.factors.unite(side_by_side(r.in[0]), side_by_side(r.out));
}

void relate_transposed(const Relation& r) {
  const Dims axes = r.node.attrs.dims("axes");
  for (int i = 0; i < axes.rank(); ++i)
    r.unite(0, normalize_axis(axes[i], axes.rank(), "places"), i);
}

// Whole periods of an axis, as queries are of queries, keys and values side by side.
void relate_sliced(const Relation& r) {
  const Dims start = r.node.attrs.dims("start"), step = r.node.attrs.dims("step");
  for (int axis = 0; axis < r.rank(); ++axis) {
    const std::int64_t all = r.shape(0)[axis], some = r.node.type.shape[axis];
    if (step[axis] == 1 && some == all) {
      r.unite(0, axis, axis);
      continue;
    }
    const std::int64_t period = step[axis] == 1 ? std::gcd(std::gcd(all, some), start[axis]) : 1;
    if (period == 0) return r.block_all();
    const Factors::List whole = r.factors.add(period);
    for (const bool is_result : {false, true}) {
      Factors::List periods = r.factors.add((is_result ? some : all) / period);
      r.factors.block(periods);
      periods.insert(periods.end(), whole.begin(), whole.end());
      r.factors.unite(is_result ? r.out[at_axis_of(axis)] : r.in[0][at_axis_of(axis)], periods);
    }
  }
}

void relate_concatenated(const Relation& r) {
  const std::int64_t along = r.node.attrs.integer("axis");
  r.factors.block(r.out[at_axis_of(along)]);
  for (std::size_t i = 0; i < r.in.size(); ++i)
    for (int axis = 0; axis < r.rank(); ++axis)
      axis == along ? r.block(i, axis) : r.unite(i, axis, axis);
}

void relate_padded(const Relation& r) {
  relate_lines(r, [&](int axis) { return r.shape(0)[axis] != r.node.type.shape[axis]; });
}

// A convolution with a filter for every channel, as stands between the products of SegFormer's
// perceptrons.
void relate_filtered(const Relation& r) {
  const std::int64_t channels = r.shape(0)[1];
  if (r.node.attrs.integer("groups") != channels || r.node.type.shape[1] != channels)
    return r.block_all();
  relate_lines(r, [](int axis) { return axis > 1; });
  r.unite(1, 0, 1);
  for (const int axis : {2, 3}) r.block(1, axis);
  if (r.in.size() > 2) r.unite(2, 0, 1);
}

// The axes of the indices stand in place of the one that they choose from.
void relate_taken(const Relation& r) {
  const int along = static_cast<int>(r.node.attrs.integer("axis")), more = r.shape(1).rank();
  for (int axis = 0; axis < r.shape(0).rank(); ++axis)
    axis == along ? r.block(0, axis) : r.unite(0, axis, axis < along ? axis : axis + more - 1);
  for (int axis = 0; axis < more; ++axis) {
    r.block(1, axis);
    r.factors.block(r.out[at_axis_of(along + axis)]);
  }
}

struct PlaceRule {
  Op op;
  void (*relate)(const Relation& relation);
};
constexpr PlaceRule kPlaceRules[] = {
    {Op::sum, relate_folds},
    {Op::mean, relate_folds},
    {Op::prod, relate_folds},
    {Op::max, relate_folds},
    {Op::min, relate_folds},
    {Op::var, relate_folds},
    {Op::any, relate_folds},
    {Op::all, relate_folds},
    {Op::argmax, relate_folds},
    {Op::argmin, relate_folds},
    {Op::matmul, relate_product},
    {Op::softmax, relate_softmax},
    {Op::log_softmax, relate_softmax},
    {Op::layer_norm, relate_rows},
    {Op::reshape, relate_reshaped},
    {Op::transpose, relate_transposed},
    {Op::slice, relate_sliced},
    {Op::broadcast_to, relate_elements},
    {Op::concatenate, relate_concatenated},
    {Op::pad, relate_padded},
    {Op::take, relate_taken},
    {Op::conv2d, relate_filtered},
};

void relate(const Relation& r) {
  if (num_elements(r.node.type.shape) == 0) return r.block_all();
  if (info(r.node.op).pattern == Pattern::elementwise) return relate_elements(r);
  const auto* const rule = std::find_if(std::begin(kPlaceRules), std::end(kPlaceRules),
                                        [&](const PlaceRule& one) { return one.op == r.node.op; });
  rule == std::end(kPlaceRules) ? r.block_all() : rule->relate(r);
}

}  // namespace

Places places_of(const Graph& graph) {
  Places places;
  const auto fresh = [&](ValueId id) {
    AxisFactors axes;
    for (const std::int64_t extent : graph.type(id).shape)
      axes.push_back(places.factors.add(extent));
    return axes;
  };
  const auto block = [&](ValueId id) {
    for (const Factors::List& axis : places.results[at(id)]) places.factors.block(axis);
  };
  places.operands.resize(at(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    places.results.push_back(fresh(id));
    if (node.kind != NodeKind::operation) continue;
    std::vector<AxisFactors>& operands = places.operands[at(id)];
    for (const ValueId input : node.inputs)
      operands.push_back(graph.is_constant(input) ? fresh(input) : places.results[at(input)]);
    relate({places.factors, graph, node, operands, places.results[at(id)]});
  }
  for (const ValueId id : graph.inputs()) block(id);
  for (const ValueId id : graph.outputs()) block(id);
  return places;
}

}  // namespace tensor

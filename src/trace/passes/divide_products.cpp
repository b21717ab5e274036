#include "src/trace/passes/divide_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "src/core/key.h"
#include "src/ops/view.h"
#include "src/trace/derived.h"
#include "src/trace/passes/clean.h"
#include "src/trace/places.h"
#include "src/trace/rewrite.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// A factor by which products may be divided.
struct DivisibleFactor {
  double flops = 0;               // of the products that have it
  ValueId last = -1;              // the first product whose depth it is
  bool is_of_columns = false;     // of a constant, which make it
  std::set<ValueId> values = {};  // that have it, of a constant the operators that read it
};

class ProductDivider {
 public:
  ProductDivider(const Graph& graph, int index, int count)
      : graph_(graph), places_(places_of(graph)), index_(index), count_(count) {}

  DividedProducts run() {
    resolve();
    find_candidates();
    DividedProducts result{{}, choose()};
    result.graph = drop_dead(divided());  // without whole constants
    return result;
  }

 private:
  // By the factors that are known in the end.
  void resolve() {
    const auto resolve_all = [&](AxisFactors& axes) {
      for (Factors::List& axis : axes) axis = places_.factors.resolved(axis);
    };
    for (AxisFactors& axes : places_.results) resolve_all(axes);
    for (std::vector<AxisFactors>& operands : places_.operands)
      for (AxisFactors& axes : operands) resolve_all(axes);
  }

  void find_candidates() {
    for (ValueId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (node.kind != NodeKind::operation) continue;
      note(id, places_.results[at(id)]);
      for (const AxisFactors& operand : places_.operands[at(id)]) note(id, operand);
      if (node.op == Op::matmul) note_product(id, node);
    }
    std::erase_if(candidates_, [&](const auto& entry) {
      return places_.factors.is_blocked(entry.first) || !entry.second.is_of_columns ||
             entry.second.last < 0;
    });
  }

  // An operator's operands count as its own: of a constant, nobody else has them.
  void note(ValueId id, const AxisFactors& axes) {
    std::set<Factors::Id> once;
    for (const Factors::List& axis : axes)
      for (const Factors::Id factor : axis) {
        candidates_[factor].values.insert(id);
        if (!once.insert(factor).second) places_.factors.block({factor});  // a diagonal
      }
  }

  void note_product(ValueId id, const Node& node) {
    const AxisFactors &left = places_.operands[at(id)][0], &right = places_.operands[at(id)][1];
    const bool is_left_constant = graph_.is_constant(node.inputs[0]),
               is_right_constant = graph_.is_constant(node.inputs[1]);
    const Factors::List& depth = left.back();
    if (!is_left_constant && !is_right_constant) places_.factors.block(depth);
    for (const Factors::Id factor : depth)
      if (ValueId& last = candidates_[factor].last; last < 0) last = id;
    const auto make_columns = [&](const Factors::List& axis) {
      for (const Factors::Id factor : axis) candidates_[factor].is_of_columns = true;
    };
    if (is_right_constant) make_columns(right.back());
    if (is_left_constant) make_columns(left[left.size() - 2]);
    const double flops = 2 * static_cast<double>(num_elements(node.type.shape)) *
                         static_cast<double>(graph_.type(node.inputs[0]).shape.back());
    std::set<Factors::Id> all(depth.begin(), depth.end());
    for (const Factors::List& axis : places_.results[at(id)]) all.insert(axis.begin(), axis.end());
    for (const Factors::Id factor : all) candidates_[factor].flops += flops;
  }

  // Where a value has several, the one with most to compute: of heads and their channels the heads.
  std::vector<ProductChain> choose() {
    std::vector<const std::pair<const Factors::Id, DivisibleFactor>*> order;
    for (const auto& entry : candidates_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return a->second.flops > b->second.flops;
    });
    std::vector<ProductChain> chains;
    std::set<ValueId> taken;
    for (const auto* entry : order) {
      const auto& [factor, candidate] = *entry;
      if (std::any_of(candidate.values.begin(), candidate.values.end(),
                      [&](ValueId id) { return taken.contains(id); }))
        continue;
      taken.insert(candidate.values.begin(), candidate.values.end());
      const std::int64_t extent = places_.factors.size(factor);
      chains.push_back({graph_[candidate.last].where, extent, extent % count_ == 0});
      if (chains.back().is_divided) chosen_.insert(factor);
    }
    return chains;
  }

  // The chosen factor of an axis, as its place among the others; nullopt where it has none.
  std::optional<std::size_t> chosen_of(const Factors::List& axis) const {
    for (std::size_t i = 0; i < axis.size(); ++i)
      if (chosen_.contains(axis[i])) return i;
    return std::nullopt;
  }
  bool is_divided(const AxisFactors& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](const auto& axis) { return chosen_of(axis); });
  }
  std::int64_t divided(std::int64_t extent, const Factors::List& axis) const {
    return chosen_of(axis) ? extent / count_ : extent;
  }
  Dims divided(Dims extents, const AxisFactors& axes) const {
    for (int i = 0; i < extents.rank(); ++i)
      extents[i] = divided(extents[i], axes[static_cast<std::size_t>(i)]);
    return extents;
  }

  Graph divided() const {
    return rewrite(
        graph_, [&](Rewriter& r, ValueId id, const Node& node) -> std::optional<ValueId> {
          const std::vector<AxisFactors>& operands = places_.operands[at(id)];
          const auto is_whole = [&](const AxisFactors& axes) { return !is_divided(axes); };
          if (is_whole(places_.results[at(id)]) &&
              std::all_of(operands.begin(), operands.end(), is_whole))
            return std::nullopt;
          ValueIds inputs = r.inputs(node);
          for (std::size_t i = 0; i < inputs.size(); ++i)
            if (graph_.is_constant(node.inputs[i]) && is_divided(operands[i]))
              inputs[i] = r.to().add_constant(part_of(graph_[node.inputs[i]].constant, operands[i]),
                                              graph_[node.inputs[i]].where);
          const ValueId own = r.to().add(node.op, inputs, attrs_of(id, node), node.where);
          const bool is_sum = node.op == Op::matmul && chosen_of(operands[0].back());
          return is_sum ? sum_of(r.to(), own) : own;
        });
  }

  // What tells extents and places is of the part.
  Attrs attrs_of(ValueId id, const Node& node) const {
    Attrs attrs = node.attrs;
    const AxisFactors& result = places_.results[at(id)];
    if (node.op == Op::reshape || node.op == Op::broadcast_to)
      attrs.set("shape", divided(node.type.shape, result));
    if (node.op == Op::conv2d) attrs.set("groups", divided(attrs.integer("groups"), result[1]));
    if (node.op == Op::slice) {
      attrs.set("start", divided(attrs.dims("start"), places_.operands[at(id)][0]));
      attrs.set("extent", divided(attrs.dims("extent"), result));
    }
    return attrs;
  }

  // Sums of parts are added in float32 at least.
  static ValueId sum_of(Graph& graph, ValueId part) {
    const DType dtype = graph.type(part).dtype;
    const SharedText where = graph[part].where;
    const bool is_wide = dtype == f32 || dtype == f64;
    if (!is_wide) part = graph.add(Op::astype, {part}, {{"dtype", f32}}, where);
    const ValueId sum = graph.add(Op::all_reduce, {part}, {}, where);
    return is_wide ? sum : graph.add(Op::astype, {sum}, {{"dtype", dtype}}, where);
  }

  Tensor part_of(Tensor x, const AxisFactors& axes) const {
    for (int axis = 0; axis < x.rank(); ++axis) {
      const Factors::List& list = axes[static_cast<std::size_t>(axis)];
      const auto place = chosen_of(list);
      if (!place) continue;
      const auto chosen = list.begin() + static_cast<std::ptrdiff_t>(*place);
      x = part_along(x, axis, places_.factors.size(Factors::List(list.begin(), chosen)),
                     x.shape(axis) / places_.factors.size(Factors::List(list.begin(), chosen)));
    }
    return x;
  }

  // Of each of so many periods along the axis, one behind the other, this device's part.
  Tensor part_along(const Tensor& x, int axis, std::int64_t periods, std::int64_t period) const {
    const std::int64_t part = period / count_, start = index_ * part;
    const auto make = [=] {
      std::vector<Tensor> parts;
      for (std::int64_t i = 0; i < periods; ++i)
        parts.push_back(slice_axis(x, axis, i * period + start, part));
      return parts.size() == 1 ? parts.front().copy() : concatenate(parts, axis);
    };
    if (periods == 1) {
      const Tensor view = slice_axis(x, axis, start, part);
      if (lies_together(view)) return view;
    }
    Key what;
    what << "part " << start << " to " << start + part << " of " << period << " along " << axis;
    return derived_for_others(graph_, what.bytes(), {x}, make);
  }

  static bool lies_together(const Tensor& x) {
    std::int64_t reach = 1;
    for (int axis = 0; axis < x.rank(); ++axis)
      reach += (x.shape(axis) - 1) * std::abs(x.strides()[axis]);
    return reach <= x.size();
  }

  const Graph& graph_;
  Places places_;
  const int index_, count_;
  std::map<Factors::Id, DivisibleFactor> candidates_;
  std::set<Factors::Id> chosen_;
};

}  // namespace

DividedProducts divide_products(const Graph& graph, int index, int count) {
  const Graph alive = drop_dead(graph);
  return ProductDivider(alive, index, count).run();
}

}  // namespace tensor

#include "src/trace/items.h"

#include <algorithm>

#include "src/ops/promote.h"
#include "src/trace/content.h"
#include "src/trace/ranges.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr int kNone = -1;   // no axis: all items have the same
constexpr int kMixed = -2;  // what an item has depends on others

// An operator's operands: which axis of each counts the items. An axis may count several places of
// every item, one item after the other: windows of images, say.
struct Operands {
  const Graph& graph;
  const Node& node;
  std::vector<int> axes;
  std::int64_t items;
  std::int64_t begins = 0;  // begins_of the indices that take has

  int rank() const { return node.type.shape.rank(); }
  const Shape& shape(std::size_t i) const { return graph.type(node.inputs[i]).shape; }
  bool are_others_whole() const {
    return std::all_of(axes.begin() + 1, axes.end(), [](int axis) { return axis == kNone; });
  }
};

// Equal, or as near as sums in another order are: where a row lies in its batch decides which part
// of a product computes it. Products of K summands differ by about sqrt(K) roundings: 256 leave
// room for a chain of them. Those of 16 bits are summed in float32 and rounded once, up or down.
bool is_same_but_for_rounding(const Tensor& a, const Tensor& b) {
  if (has_same_elements(a, b)) return true;
  if (!is_floating(a.dtype())) return false;
  const double eps = (item_size(a.dtype()) > 2 ? 256 : 1) * epsilon_of(a.dtype());
  const Tensor x = a.astype(f64), y = b.astype(f64);
  return max(abs(x - y)).item<double>() <= eps * max(abs(x)).item<double>();
}

// Whether every item has the same of a value that does not depend on the batch.
bool is_alike(const Graph& graph, ValueId id, int axis, std::int64_t items) {
  const Node& node = graph[id];
  const Shape& shape = node.type.shape;
  if (axis < 0 || shape[axis] == 1) return true;
  if (node.kind == NodeKind::constant) {
    const Tensor& x = node.constant;
    if (x.strides()[axis] == 0) return true;
    if (shape[axis] % items != 0) return false;
    // All but the last item, and all but the first.
    Dims start, step;
    for (int i = 0; i < shape.rank(); ++i) start.push_back(0), step.push_back(1);
    Shape extent = shape;
    extent[axis] -= shape[axis] / items;
    const Attrs first = {{"start", start}, {"extent", extent}, {"step", step}};
    start[axis] = shape[axis] / items;
    const Attrs last = {{"start", start}, {"extent", extent}, {"step", step}};
    return is_same_but_for_rounding(apply_op(Op::slice, {x}, first),
                                    apply_op(Op::slice, {x}, last));
  }
  const bool is_stretched =
      node.kind == NodeKind::operation &&
      (node.op == Op::broadcast_to || info(node.op).pattern == Pattern::elementwise);
  return is_stretched && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
           return is_alike(graph, input, axis - shape.rank() + graph.type(input).shape.rank(),
                           items);
         });
}

// The operands' axes are the result's last ones. `skips` says which axis of an operand is none of
// the result's.
using Skips = int (*)(const Operands& operands, std::size_t i);
int skips_none(const Operands&, std::size_t) { return kNone; }

int stretched(const Operands& o, Skips skips) {
  const auto lead = [&](std::size_t i) { return o.rank() - o.shape(i).rank(); };
  int axis = kNone;
  for (std::size_t i = 0; i < o.axes.size(); ++i) {
    if (o.axes[i] == kNone) continue;
    const int here = o.axes[i] + lead(i);
    if (o.axes[i] == skips(o, i) || (axis != kNone && here != axis)) return kMixed;
    axis = here;
  }
  for (std::size_t i = 0; i < o.axes.size(); ++i)
    if (o.axes[i] == kNone && axis - lead(i) != skips(o, i) &&
        !is_alike(o.graph, o.node.inputs[i], axis - lead(i), o.items))
      return kMixed;
  return axis;
}

int of_elements(const Operands& o) { return stretched(o, skips_none); }

int of_product(const Operands& o) {
  return stretched(o, [](const Operands& operands, std::size_t i) {
    return operands.shape(i).rank() - (i == 0 ? 1 : 2);
  });
}

// Of operators with an attribute `axis`, along which elements depend on each other.
int beside_axis(const Operands& o) {
  return stretched(o, [](const Operands& operands, std::size_t i) {
    return static_cast<int>(
        normalize_axis(operands.node.attrs.integer("axis"), operands.shape(i).rank(), "items"));
  });
}

int of_rows(const Operands& o) {
  return o.axes[0] + 1 == o.shape(0).rank() || !o.are_others_whole() ? kMixed : o.axes[0];
}

int of_row_sums(const Operands& o) {
  const int axis = of_rows(o);
  return axis < 0 ? axis : axis + 1;
}

// By sums of the same rows, and scales of them.
int of_rows_with_sums(const Operands& o) {
  const int axis = o.axes[0];
  const bool fits = axis >= 0 && axis + 1 < o.shape(0).rank() && o.axes[1] == kNone &&
                    o.axes[2] == kNone && (o.axes.size() < 4 || o.axes[3] == axis + 1);
  return fits ? axis : kMixed;
}

int of_rows_with_scales(const Operands& o) {
  const int axis = o.axes[0];
  const bool fits = axis >= 0 && axis + 1 < o.shape(0).rank() && o.axes[1] == kNone &&
                    o.axes[2] == kNone && (o.axes.size() < 4 || o.axes[3] == axis);
  return fits ? axis : kMixed;
}

int of_images(const Operands& o) { return o.axes[0] == 0 && o.are_others_whole() ? 0 : kMixed; }
// Every box is sampled by itself.
int of_boxes(const Operands& o) { return o.axes[0] == kNone && o.axes[1] == 0 ? 0 : kMixed; }
int of_planes(const Operands& o) {
  return o.axes[0] + 2 < o.shape(0).rank() && o.are_others_whole() ? o.axes[0] : kMixed;
}

int of_folds(const Operands& o) {
  const Dims axes = o.node.attrs.dims("axis");
  const int axis = o.axes[0];
  if (axes.contains(axis)) return kMixed;
  if (o.node.attrs.flag("keepdims")) return axis;
  return axis - static_cast<int>(std::count_if(axes.begin(), axes.end(),
                                               [=](std::int64_t folded) { return folded < axis; }));
}

// As many elements are before the items there, and every item has a whole number of places.
int of_reshaped(const Operands& o) {
  const Shape &from = o.shape(0), &to = o.node.type.shape;
  std::int64_t before = 1, passed = 1;
  for (int i = 0; i < o.axes[0]; ++i) before *= from[i];
  for (int i = 0; i < to.rank(); passed *= to[i++])
    if (passed == before && to[i] % o.items == 0) return i;
  return kMixed;
}

int of_transposed(const Operands& o) {
  const Dims axes = o.node.attrs.dims("axes");
  for (int i = 0; i < axes.rank(); ++i)
    if (normalize_axis(axes[i], axes.rank(), "items") == o.axes[0]) return i;
  return kMixed;
}

int of_sliced(const Operands& o) {
  const int axis = o.axes[0];
  const bool is_all =
      o.node.attrs.dims("step")[axis] == 1 && o.node.type.shape[axis] == o.shape(0)[axis];
  return is_all ? axis : kMixed;
}

int of_padded(const Operands& o) {
  const int axis = o.axes[0];
  const bool is_all = o.are_others_whole() && o.node.type.shape[axis] == o.shape(0)[axis];
  return is_all ? axis : kMixed;
}

// The axes of the indices stand in place of the one that they choose from.
int of_taken(const Operands& o) {
  const int axis =
      static_cast<int>(normalize_axis(o.node.attrs.integer("axis"), o.shape(0).rank(), "items"));
  if (o.axes[0] == kNone) return axis + o.axes[1];
  if (o.begins > 0 && o.axes[0] == axis && o.shape(0)[axis] == o.items * o.begins)
    return axis + o.axes[1];
  if (o.axes[1] != kNone || o.axes[0] == axis) return kMixed;
  return o.axes[0] < axis ? o.axes[0] : o.axes[0] + o.shape(1).rank() - 1;
}

struct Rule {
  Op op;
  /// The axis of the result, where an operand has one.
  int (*axis_of)(const Operands& operands);
};
constexpr Rule kRules[] = {
    {Op::sum, of_folds},
    {Op::mean, of_folds},
    {Op::prod, of_folds},
    {Op::max, of_folds},
    {Op::min, of_folds},
    {Op::var, of_folds},
    {Op::any, of_folds},
    {Op::all, of_folds},
    {Op::argmax, of_folds},
    {Op::argmin, of_folds},
    {Op::cumsum, beside_axis},
    {Op::cumprod, beside_axis},
    {Op::sort, beside_axis},
    {Op::argsort, beside_axis},
    {Op::matmul, of_product},
    {Op::quantized_matmul, of_rows_with_scales},
    {Op::quantized_conv2d, of_images},
    {Op::softmax, beside_axis},
    {Op::log_softmax, beside_axis},
    {Op::layer_norm, of_rows},
    {Op::row_sums, of_row_sums},
    {Op::layer_norm_by_sums, of_rows_with_sums},
    {Op::conv2d, of_images},
    {Op::conv_transpose2d, of_images},
    {Op::max_pool2d, of_planes},
    {Op::avg_pool2d, of_planes},
    {Op::interpolate, of_planes},
    {Op::roi_align, of_boxes},
    {Op::reshape, of_reshaped},
    {Op::transpose, of_transposed},
    {Op::slice, of_sliced},
    {Op::broadcast_to, of_elements},
    {Op::concatenate, beside_axis},
    {Op::pad, of_padded},
    {Op::take, of_taken},
    {Op::take_along_axis, beside_axis},
    {Op::put_along_axis, beside_axis},
};

int axis_of(const Operands& operands) {
  if (info(operands.node.op).pattern == Pattern::elementwise) return of_elements(operands);
  for (const Rule& rule : kRules)
    if (rule.op == operands.node.op) return rule.axis_of(operands);
  return kMixed;
}

// ---- Indices of rows that lie one item behind the other: of item i they begin at i times their
// number in an item. grid_sample makes them.

// The number n where a constant is 0, n, 2 n and so on along the axis with the items; otherwise 0.
std::int64_t step_along(const Tensor& x, int axis, std::int64_t items) {
  if (axis < 0 || x.dtype() != i64 || x.size() < 2 || x.shape(axis) % items != 0 ||
      x.size() != x.shape(axis) || x.device().is_cuda())
    return 0;
  const std::vector<std::int64_t> values = x.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<std::int64_t>(i) * values[1]) return 0;
  return std::max<std::int64_t>(values[1], 0);
}

/// The rows of an item where the sum is such indices; otherwise 0.
std::int64_t begins_of(const Operands& o, const std::vector<Range>& ranges) {
  if (o.node.op != Op::add) return 0;
  for (const std::size_t i : {0u, 1u}) {
    const ValueId index = o.node.inputs[i], begin = o.node.inputs[1 - i];
    if (o.axes[i] == kNone || !o.graph.is_constant(begin)) continue;
    const int axis = o.axes[i] - o.shape(i).rank() + o.shape(1 - i).rank();
    const std::int64_t step = step_along(o.graph[begin].constant, axis, o.items);
    const Range& range = ranges[at(index)];
    if (step > 0 && range.least >= 0 && range.most < static_cast<double>(step))
      return step * (o.shape(i)[o.axes[i]] / o.items);
  }
  return 0;
}

// The indices are the operand with items.
int axis_of_sum(const Operands& o) {
  const std::size_t i = o.axes[0] == kNone ? 1 : 0;
  return o.axes[i] + o.rank() - o.shape(i).rank();
}

constexpr const char* kMend =
    "name inputs that are no batches in whole_inputs, or compile for one device";

[[noreturn]] void refuse_mixing(const Node& node) {
  fail("compile", "got a function that mixes the items of its batch, in ", info(node.op).name,
       " : ", node.type, node.where.empty() ? "" : " @ " + node.where.str(),
       ", need one that computes each by itself for several devices: ", kMend);
}

/// What is known of every value of a graph.
class Follower {
 public:
  Follower(const Graph& graph, const std::vector<bool>& is_batch, std::int64_t items)
      : graph_(graph),
        items_(items),
        axes_(at(graph.size()), kNone),
        mixed_(axes_.size(), -1),
        begins_(axes_.size(), 0),
        ranges_(ranges_of(graph)) {
    for (std::size_t i = 0; i < is_batch.size(); ++i)
      if (is_batch[i]) axes_[at(graph.inputs()[i])] = 0;
    for (ValueId id = 0; id < graph.size(); ++id)
      if (graph[id].kind == NodeKind::operation) follow(id);
  }

  void check_output(std::size_t i) const {
    const ValueId id = graph_.outputs()[i];
    const ValueId mixed = begins_[at(id)] > 0 ? id : mixed_[at(id)];
    if (mixed >= 0) refuse_mixing(graph_[mixed]);
    if (axes_[at(id)] == kNone)
      fail(
          "compile", "output ", i, ", ", graph_.type(id),
          ", does not depend on the batch, need outputs whose axis 0 counts its items for several ",
          "devices: leave it out, or compile for one device");
    if (axes_[at(id)] > 0)
      fail("compile", "output ", i, ", ", graph_.type(id),
           ", counts the items of the batch along axis ", axes_[at(id)],
           ", need axis 0 for several devices: transpose it");
  }

 private:
  void follow(ValueId id) {
    const Node& node = graph_[id];
    Operands operands{graph_, node, {}, items_};
    ValueId& mixed = mixed_[at(id)];
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::size_t input = at(node.inputs[i]);
      operands.axes.push_back(axes_[input]);
      mixed = std::max(mixed, mixed_[input]);
      if (begins_[input] == 0) continue;
      if (node.op == Op::take && i == 1)
        operands.begins = begins_[input];
      else
        mixed = node.inputs[i];
    }
    const auto& axes = operands.axes;
    if (mixed >= 0 || std::ranges::all_of(axes, [](int axis) { return axis == kNone; })) return;
    if (operands.begins > 0 && axes[0] == kNone) {
      mixed = node.inputs[1];
      return;
    }
    begins_[at(id)] = begins_of(operands, ranges_);
    axes_[at(id)] = begins_[at(id)] > 0 ? axis_of_sum(operands) : axis_of(operands);
    if (axes_[at(id)] == kMixed) mixed = id;
  }

  const Graph& graph_;
  const std::int64_t items_;
  std::vector<int> axes_;
  std::vector<ValueId> mixed_;        // where items came together, -1: nowhere
  std::vector<std::int64_t> begins_;  // as begins_of
  std::vector<Range> ranges_;
};

}  // namespace

void check_items(const Graph& graph, const std::vector<bool>& is_batch, std::int64_t items) {
  const Follower follower(graph, is_batch, items);
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) follower.check_output(i);
}

}  // namespace tensor

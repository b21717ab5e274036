#include "src/kernels/cpu/folds/match.h"

#include <algorithm>

#include "src/kernels/elementwise.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kMostLanes = 1 << 14;
constexpr std::int64_t kMostRows = 1 << 20;  // each has its place in a list

bool is_fold(Op op) { return op == Op::sum || op == Op::mean || op == Op::var || op == Op::max; }

// An axis of the value, of more than one element.
struct Axis {
  std::int64_t extent, stride;
  bool is_reduced;
  std::int64_t row_step;  // by how many results the next element is further on
};

std::vector<Axis> axes_of(const BlockShape& shape, const Strides& strides) {
  std::vector<Axis> axes;
  std::int64_t step = 1;
  for (int axis = shape.extents.rank(); axis-- > 0;) {
    const bool is_reduced = shape.columns.contains(axis);
    const std::int64_t extent = shape.extents[axis];
    axes.push_back({extent, strides[axis], is_reduced, is_reduced ? 0 : step});
    if (!is_reduced) step *= extent;
  }
  std::stable_sort(axes.begin(), axes.end(),
                   [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  return axes;  // innermost first
}

// How many of the innermost axes make a line: up to the last one that is kept before whole lines
// are folded. 0 where elements that are folded lie side by side, or none do.
std::size_t line_axes(const std::vector<Axis>& axes) {
  std::int64_t dense = 1;
  std::size_t count = 0;
  for (std::size_t i = 0; i < axes.size() && axes[i].stride == dense; ++i) {
    if (axes[i].is_reduced && count > 0) break;
    dense *= axes[i].extent;
    if (dense > kMostLanes) break;
    if (!axes[i].is_reduced) count = i + 1;
  }
  return count;
}

// The offsets in steps of `step(axis)` of all elements of some axes, the last one outermost.
template <class Step>
std::vector<std::int64_t> offsets(const std::vector<Axis>& axes, const Step& step) {
  std::vector<std::int64_t> all = {0};
  for (const Axis& axis : axes) {
    const std::size_t before = all.size();
    for (std::int64_t i = 1; i < axis.extent; ++i)
      for (std::size_t k = 0; k < before; ++k) all.push_back(all[k] + i * step(axis));
  }
  return all;
}

void divide(Folds& folds, const std::vector<Axis>& axes, std::size_t count) {
  const auto end = axes.begin() + static_cast<std::ptrdiff_t>(count);
  const std::vector<Axis> inner(axes.begin(), end);
  std::vector<Axis> outer;
  Shape extents;
  Strides strides;
  for (auto axis = axes.rbegin(); axis != std::make_reverse_iterator(end); ++axis)
    if (axis->is_reduced) {
      extents.push_back(axis->extent), strides.push_back(axis->stride);
      folds.lines *= axis->extent;
    }
  std::copy_if(end, axes.end(), std::back_inserter(outer),
               [](const Axis& axis) { return !axis.is_reduced; });
  const auto row_step = [](const Axis& axis) { return axis.row_step; };
  folds.folded = Access(extents, strides);
  folds.begins = offsets(outer, [](const Axis& axis) { return axis.stride; });
  folds.rows = offsets(outer, row_step);
  folds.lane_rows = offsets(inner, row_step);
  folds.lanes = static_cast<std::int64_t>(folds.lane_rows.size());
}

// The operators by kind; false if one has no place here.
bool sort_operators(const Graph& graph, const Group& group, Folds& folds) {
  for (const ValueId id : group.nodes) {
    const Node& node = graph[id];
    if (is_elementwise(node.op)) {
      if (folds.shape.members.at(id) != BlockExtent::row) return false;
      folds.others.push_back(id);
      continue;
    }
    const ValueId from = node.inputs[0];
    const bool is_first = folds.reductions.empty();
    if (!is_fold(node.op) || node.type.dtype != f32 || (!is_first && from != folds.from))
      return false;
    folds.from = from;
    folds.reductions.push_back(id);
  }
  const auto read = std::find(group.reads.begin(), group.reads.end(), folds.from);
  folds.operand = static_cast<std::size_t>(read - group.reads.begin());
  return read != group.reads.end() && graph.type(folds.from).dtype == f32;
}

}  // namespace

std::optional<Folds> folds_of(const Isolated& alone) {
  const Graph& graph = alone.laid.graph;
  const auto shape = block_shape_of(graph, alone.group);
  if (!shape || !shape->has_rows || shape->row_count() > kMostRows) return std::nullopt;
  Folds folds;
  folds.shape = *shape;
  if (!sort_operators(graph, alone.group, folds)) return std::nullopt;
  const Layout& layout = alone.laid.layouts[static_cast<std::size_t>(folds.from)];
  const std::vector<Axis> axes =
      axes_of(*shape, squeezed_strides(layout, graph.type(folds.from).shape));
  const std::size_t count = line_axes(axes);
  if (count == 0) return std::nullopt;
  divide(folds, axes, count);
  return folds.lines > 1 ? std::optional(folds) : std::nullopt;
}

}  // namespace tensor::cpu

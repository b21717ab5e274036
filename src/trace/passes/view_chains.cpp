#include "src/trace/passes/view_chains.h"

#include <algorithm>
#include <numeric>

#include "tensor/attrs.h"

namespace tensor {
namespace {

// A value whose elements are those of another one in another order: `extents` of the pieces that
// the other one's axes are split into, outermost first; which of them every axis of the value
// consists of.
struct Arrangement {
  ValueId source = -1;
  Dims extents;
  std::vector<std::vector<int>> axes;
  int transposes = 0;

  // The piece becomes two, of which the second has so many elements.
  void split(int piece, std::int64_t inner) {
    extents[piece] /= inner;
    extents.insert(piece + 1, inner);
    for (std::vector<int>& axis : axes)
      for (std::size_t i = 0; i < axis.size(); ++i) {
        if (axis[i] > piece) ++axis[i];
        if (axis[i] == piece)
          axis.insert(axis.begin() + static_cast<std::ptrdiff_t>(++i), piece + 1);
      }
  }

  std::vector<int> order() const {
    std::vector<int> all;
    for (const std::vector<int>& axis : axes) all.insert(all.end(), axis.begin(), axis.end());
    return all;
  }
};

Arrangement of_value(const Graph& graph, ValueId id) {
  Arrangement a{id, {}, {}, 0};
  for (const std::int64_t extent : graph.type(id).shape) {
    a.axes.emplace_back();
    if (extent == 1) continue;
    a.axes.back().push_back(a.extents.rank());
    a.extents.push_back(extent);
  }
  return a;
}

Arrangement transposed(Arrangement a, const Dims& axes) {
  std::vector<std::vector<int>> moved;
  for (const std::int64_t axis : axes)
    moved.push_back(a.axes[static_cast<std::size_t>(
        normalize_axis(axis, static_cast<int>(a.axes.size()), "transpose"))]);
  a.axes = std::move(moved);
  ++a.transposes;
  return a;
}

// nullopt where an axis would end within a piece that has no such divisor, or there would be too
// many pieces.
std::optional<Arrangement> reshaped(Arrangement a, const Shape& shape) {
  a.axes = {a.order()};
  std::vector<std::vector<int>> axes;
  std::size_t next = 0;
  for (const std::int64_t extent : shape) {
    std::int64_t left = extent;
    std::vector<int> axis;
    for (; left > 1; ++next) {
      const int piece = a.axes[0][next];
      const std::int64_t whole = a.extents[piece];
      if (whole > left) {
        if (whole % left != 0 || a.extents.rank() == kMaxRank) return std::nullopt;
        a.split(piece, whole / left);
        for (std::vector<int>& done : axes)
          for (int& other : done) other += other > piece;
        for (int& other : axis) other += other > piece;
      } else if (left % whole != 0) {
        return std::nullopt;
      }
      axis.push_back(piece);
      left /= a.extents[piece];
    }
    axes.push_back(std::move(axis));
  }
  a.axes = std::move(axes);
  return a;
}

std::optional<Arrangement> arrangement(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  const bool is_reshape = graph.is_op(id, Op::reshape);
  if (num_elements(node.type.shape) == 0 || (!is_reshape && !graph.is_op(id, Op::transpose)))
    return of_value(graph, id);
  const auto inner = arrangement(graph, node.inputs[0]);
  if (!inner) return of_value(graph, id);
  if (!is_reshape) return transposed(*inner, node.attrs.dims("axes"));
  return reshaped(*inner, node.type.shape);
}

// Pieces that are neighbours before and after are one.
void join_pieces(Dims& extents, std::vector<int>& order) {
  for (std::size_t i = 0; i + 1 < order.size();) {
    const int piece = order[i];
    if (order[i + 1] != piece + 1) {
      ++i;
      continue;
    }
    extents[piece] *= extents[piece + 1];
    extents.erase(piece + 1);
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    for (int& other : order) other -= other > piece;
  }
}

}  // namespace

std::optional<ValueId> view_chain(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::reshape && node.op != Op::transpose) return std::nullopt;
  const auto before = arrangement(r.to(), r.inputs(node)[0]);
  if (!before || num_elements(node.type.shape) == 0) return std::nullopt;
  const auto all = node.op == Op::reshape
                       ? reshaped(*before, node.type.shape)
                       : std::optional(transposed(*before, node.attrs.dims("axes")));
  if (!all || all->transposes < 2) return std::nullopt;
  Dims extents = all->extents;
  std::vector<int> order = all->order();
  join_pieces(extents, order);
  ValueId value = all->source;
  const auto reshape_to = [&](const Shape& shape) {
    if (!(r.to().type(value).shape == shape))
      value = r.to().add(Op::reshape, {value}, {{"shape", shape}}, node.where);
  };
  if (order.size() > 1) {
    Dims axes;
    for (const int piece : order) axes.push_back(piece);
    reshape_to(extents);
    value = r.to().add(Op::transpose, {value}, {{"axes", axes}}, node.where);
  }
  reshape_to(node.type.shape);
  return value;
}

}  // namespace tensor

#include "src/trace/passes/known_indices.h"

#include <algorithm>

#include "src/trace/ranges.h"
#include "src/trace/rewrite.h"

namespace tensor {
namespace {

// Constant indices are looked at where they are needed.
bool needs_proof(const Graph& graph, const Node& node) {
  return node.kind == NodeKind::operation &&
         (node.op == Op::take || node.op == Op::take_along_axis) &&
         !node.attrs.flag("clip", false) && !graph.is_constant(node.inputs[1]);
}

}  // namespace

Graph known_indices(const Graph& graph) {
  if (std::ranges::none_of(graph.nodes(), [&](const Node& n) { return needs_proof(graph, n); }))
    return graph;
  const std::vector<Range> ranges = ranges_of(graph);
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (!needs_proof(graph, node)) return std::nullopt;
    const int axis = static_cast<int>(node.attrs.integer("axis"));
    const auto extent = static_cast<double>(graph.type(node.inputs[0]).shape[axis]);
    const Range& range = ranges[at(node.inputs[1])];
    if (range.least < -extent || range.most > extent - 1) return std::nullopt;
    Attrs attrs = node.attrs;
    attrs.set("clip", true);
    return r.to().add(node.op, r.inputs(node), attrs, node.where);
  });
}

}  // namespace tensor

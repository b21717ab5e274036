#include "src/trace/passes/known_indices.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "src/trace/group.h"
#include "src/trace/ranges.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"
#include "tensor/text.h"

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

Graph checked_indices(const Graph& graph) {
  const auto& nodes = graph.nodes();
  if (std::ranges::none_of(nodes, [&](const Node& n) { return needs_proof(graph, n); }) ||
      std::ranges::any_of(nodes, is_choice))
    return graph;
  std::map<std::pair<ValueId, std::int64_t>, ValueId> flags;  // by indices and extent
  std::vector<ValueId> found;
  std::vector<std::string> checks = graph.checks();
  Graph checked = rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) {
    std::optional<ValueId> result;
    if (!needs_proof(graph, node)) return result;
    Graph& to = r.to();
    const int axis = static_cast<int>(node.attrs.integer("axis"));
    const std::int64_t extent = graph.type(node.inputs[0]).shape[axis];
    std::vector<ValueId> inputs = r.inputs(node);
    const ValueId indices = inputs[1];
    if (!flags.contains({indices, extent})) {
      const DType dtype = to.type(indices).dtype;
      const auto beyond = [&](Op op, std::int64_t bound) {
        const ValueId limit = to.add_constant(full({}, static_cast<double>(bound), dtype));
        return to.add(op, {indices, limit}, {}, node.where);
      };
      const ValueId wrong =
          to.add(Op::logical_or, {beyond(Op::less, -extent), beyond(Op::greater_equal, extent)}, {},
                 node.where);
      Ints all(static_cast<std::size_t>(to.type(indices).shape.rank()));
      std::iota(all.begin(), all.end(), 0);
      const Attrs over{{"axis", all}, {"keepdims", false}};
      found.push_back(to.add(Op::any, {wrong}, over, node.where));
      flags[{indices, extent}] = found.back();
      TextWriter what;
      what << info(node.op).name;
      if (!node.where.empty()) what << " of \"" << node.where << '"';
      what << ": an index is out of range, need " << -extent << " to " << extent - 1;
      checks.push_back(what.str());
    }
    Attrs attrs = node.attrs;
    attrs.set("clip", true);
    result = to.add(node.op, std::move(inputs), attrs, node.where);
    return result;
  });
  std::vector<ValueId> outputs = checked.outputs();
  outputs.insert(outputs.end(), found.begin(), found.end());
  checked.set_outputs(std::move(outputs));
  checked.set_checks(std::move(checks));
  return checked;
}

}  // namespace tensor

#include "src/trace/guards.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace tensor {
namespace {

Guards in_both(const Guards& a, const Guards& b) {
  Guards both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

// The guards under which a node reads its operand `k`: its own, and of a choice its condition.
Guards of_operand(const Node& reader, const Guards& own, std::size_t k) {
  Guards guards = own;
  if (is_choice(reader) && k > 0) {
    const Guard guard{reader.inputs[0], k == 1};
    const auto place = std::lower_bound(guards.begin(), guards.end(), guard);
    if (place == guards.end() || *place != guard) guards.insert(place, guard);
  }
  return guards;
}

// What holds wherever an operator's result is needed, for each of them, sorted by the condition.
// Readers come after what they read, so their guards are known first.
std::vector<Guards> guards_of_nodes(const Graph& graph) {
  const Wiring wires = wiring(graph);
  std::vector<Guards> guards(at(graph.size()));
  for (ValueId id = graph.size() - 1; id >= 0; --id) {
    if (!is_compute(graph, id) || wires.returned[at(id)]) continue;
    std::optional<Guards> common;
    for (const ValueId reader : wires.readers[at(id)]) {
      const Node& node = graph[reader];
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        if (wires.root[at(node.inputs[k])] != id) continue;
        const Guards edge = of_operand(node, guards[at(reader)], k);
        common = common ? in_both(*common, edge) : edge;
      }
      if (common && common->empty()) break;
    }
    if (common) guards[at(id)] = *std::move(common);
  }
  return guards;
}

}  // namespace

std::vector<Guards> guards_of(const Graph& graph, const FusionPlan& plan) {
  std::vector<Guards> result(plan.groups.size());
  const auto& nodes = graph.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), is_choice)) return result;
  const std::vector<Guards> of_node = guards_of_nodes(graph);
  std::vector<bool> is_known(at(graph.size()), true);
  for (const Group& group : plan.groups)
    for (const ValueId id : group.nodes) is_known[at(id)] = false;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const std::vector<ValueId>& members = plan.groups[g].nodes;
    Guards guards = of_node[at(members.front())];
    for (const ValueId id : members) guards = in_both(guards, of_node[at(id)]);
    std::erase_if(
        guards, [&](const Guard& guard) { return !is_known[at(root_of(graph, guard.condition))]; });
    result[g] = std::move(guards);
    for (const ValueId id : members) is_known[at(id)] = true;
  }
  return result;
}

}  // namespace tensor

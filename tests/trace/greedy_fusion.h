// A greedy fuser, with which `fuse` is compared: it merges an operator into its producer's group
// whenever that is cheaper.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "src/trace/fuse.h"

namespace tensor::check {

inline FusionPlan greedy_fusion(const LaidOutGraph& laid, const CostFn& cost) {
  const Graph& graph = laid.graph;
  const Wiring wires = wiring(graph);
  const auto costed = [&](std::vector<ValueId> nodes) {
    Group group = make_group(graph, wires, std::move(nodes));
    const GroupCost c = cost(laid, group);
    group.family = c.family;
    group.microseconds = c.microseconds;
    group.schedule = c.schedule;
    return group;
  };
  std::vector<int> group_of(at(graph.size()), -1);
  std::vector<Group> groups;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!is_compute(graph, id)) continue;
    Group own = costed({id});
    // Only the group of the latest producer can take the operator in without closing a circle.
    int latest = -1;
    for (const ValueId input : graph[id].inputs)
      latest = std::max(latest, group_of[at(wires.root[at(input)])]);
    if (latest >= 0) {
      Group& producer = groups[at(latest)];
      std::vector<ValueId> nodes = producer.nodes;
      nodes.push_back(id);
      Group merged = costed(std::move(nodes));
      if (merged.family >= 0 && merged.microseconds <= producer.microseconds + own.microseconds) {
        producer = std::move(merged);
        group_of[at(id)] = latest;
        continue;
      }
    }
    group_of[at(id)] = static_cast<int>(groups.size());
    groups.push_back(std::move(own));
  }
  FusionPlan plan;
  plan.groups = std::move(groups);
  for (const Group& group : plan.groups) plan.microseconds += group.microseconds;
  return plan;
}

}  // namespace tensor::check

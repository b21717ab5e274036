#include "src/trace/fuse.h"

#include <iterator>
#include <set>

#include "src/trace/fuse/cones.h"
#include "src/trace/fuse/join.h"

namespace tensor {
namespace {

using namespace fusion;

class Planner {
 public:
  Planner(const Fusible& fusible, const CostFn& cost, const FuseLimits& limits)
      : graph_(fusible), costs_(fusible.laid, cost), limits_(limits) {
    for (const Piece& piece : pieces_of(graph_, limits.piece)) {
      const std::int64_t size = piece.end - piece.begin,
                         groups = 2 * size + limits.groups * size / graph_.size(),
                         steps = limits.steps * size / graph_.size();
      searches_.emplace_back(graph_, piece, Cones(graph_, piece, limits_, costs_).find(groups),
                             steps);
    }
  }

  FusionPlan plan() {
    FusionPlan plan;
    for (const Search& search : searches_) {
      std::vector<Group> groups;
      for (const Choice* choice : search.partition()) groups.push_back(group_of(search, *choice));
      if (limits_.joins)
        groups = join_elementwise(graph_.fusible.laid, graph_.wires, std::move(groups), costs_,
                                  limits_.nodes);
      std::move(groups.begin(), groups.end(), std::back_inserter(plan.groups));
    }
    plan.groups = in_program_order(graph_.wires, std::move(plan.groups));
    for (const Group& group : plan.groups) plan.microseconds += group.microseconds;
    return plan;
  }

  std::vector<Group> alternatives(double share) const {
    std::set<std::string> known;
    for (const Search& search : searches_)
      for (const Choice* choice : search.partition())
        known.insert(costs_.structure(group_of(search, *choice)));
    std::vector<Group> result;
    for (const Search& search : searches_)
      search.for_each_rival([&](const Choice& choice, double dearer) {
        if (choice.is_run || dearer > share * choice.price) return;
        Group group = group_of(search, choice);
        if (known.insert(costs_.structure(group)).second) result.push_back(std::move(group));
      });
    return result;
  }

 private:
  Group group_of(const Search& search, const Choice& choice) const {
    std::vector<ValueId> nodes;
    for (const int i : choice.nodes.members())
      nodes.push_back(graph_.ids[at(search.piece().begin + i)]);
    return costed(make_group(graph_.graph, graph_.wires, std::move(nodes)), choice.cost);
  }

  const ComputeGraph graph_;
  GroupCosts costs_;
  const FuseLimits limits_;
  std::vector<Search> searches_;  // of the pieces
};

}  // namespace

FusionPlan fuse(const Fusible& fusible, const CostFn& cost, const FuseLimits& limits) {
  return Planner(fusible, cost, limits).plan();
}

Fusion fuse_with_alternatives(const Fusible& fusible, const CostFn& cost, double share,
                              const FuseLimits& limits) {
  Planner planner(fusible, cost, limits);
  FusionPlan plan = planner.plan();
  return {std::move(plan), planner.alternatives(share)};
}

FusionPlan no_fusion(const LaidOutGraph& laid, const CostFn& cost) {
  const Wiring wires = wiring(laid.graph);
  FusionPlan plan;
  for (ValueId id = 0; id < laid.graph.size(); ++id) {
    if (!is_compute(laid.graph, id)) continue;
    const Group group = make_group(laid.graph, wires, {id});
    plan.groups.push_back(costed(group, cost(laid, group)));
    plan.microseconds += plan.groups.back().microseconds;
  }
  return plan;
}

}  // namespace tensor

#include "src/trace/fuse/cones.h"

#include <algorithm>
#include <set>

namespace tensor::fusion {
namespace {

// What it takes to look at a group, beside one that equals another: the cost of a new one is asked
// for, and all take as long as they have operands, of which a concatenation may have thousands.
constexpr std::int64_t kNew = 4;
constexpr std::int64_t kOperands = 32;

}  // namespace

Cones::Cones(const ComputeGraph& graph, Piece piece, const FuseLimits& limits, GroupCosts& costs)
    : graph_(graph),
      piece_(piece),
      limits_(limits),
      costs_(costs),
      ancestors_(at(piece.end - piece.begin), NodeSet(piece.end - piece.begin)),
      choices_(ancestors_.size()) {
  for (int i = piece.begin; i < piece.end; ++i)
    for (const int p : graph_.producers[at(i)]) {
      if (p < piece.begin) continue;
      ancestors_[at(i - piece.begin)].add(ancestors_[at(p - piece.begin)]);
      ancestors_[at(i - piece.begin)].add(p - piece.begin);
    }
}

std::vector<std::vector<Choice>> Cones::find(std::int64_t most) && {
  std::vector<std::vector<Members>> open(choices_.size());  // the largest so far, of each operator
  for (int top = piece_.begin; top < piece_.end; ++top) {
    open[at(top - piece_.begin)] = {{top}};
    add({top}, {top});
  }
  std::int64_t effort = kNew * most;
  for (int size = 2; size <= limits_.nodes && effort > 0; ++size)
    for (std::vector<Members>& cones : open) {
      std::vector<Members> larger;
      for (const Members& members : cones)
        for (Members& more : grown(members)) {
          if (effort <= 0) break;
          effort -= add(more, {more.front()});
          larger.push_back(std::move(more));
        }
      cones = std::move(larger);
    }
  for (const ParallelRun& run : graph_.fusible.runs) add_run(run);
  return std::move(choices_);
}

// The sets of one operator more that are convex too and lead to the same one. Members are added in
// descending order, so that each set is found once, and none before all that lies between it and
// the first.
std::vector<Cones::Members> Cones::grown(const Members& members) const {
  if (graph_.pattern(members.front()) == Pattern::opaque) return {};
  int heavy = 0;
  for (const int m : members) heavy += graph_.is_heavy(m);
  std::set<int> producers;
  for (const int m : members)
    for (const int p : graph_.producers[at(m)])
      if (p < members.back() && p >= piece_.begin) producers.insert(p);
  std::vector<Members> result;
  for (const int p : producers)
    if (graph_.pattern(p) != Pattern::opaque && heavy + graph_.is_heavy(p) <= limits_.heavy &&
        is_convex_with(members, p)) {
      result.push_back(members);
      result.back().push_back(p);
    }
  return result;
}

// Whether all readers of p that lead to the group are in it.
bool Cones::is_convex_with(const Members& members, int p) const {
  const NodeSet& before = ancestors_[at(members.front() - piece_.begin)];
  const auto& readers = graph_.consumers[at(p)];
  return std::all_of(readers.begin(), readers.end(), [&](int c) {
    return c >= piece_.end || !before.has(c - piece_.begin) ||
           std::count(members.begin(), members.end(), c) > 0;
  });
}

// Parallel products as one group: the last operator of any chain may be the group's last.
void Cones::add_run(const ParallelRun& run) {
  std::vector<int> members, sinks;
  for (const ValueId id : run.lead) members.push_back(graph_.index[at(id)]);
  for (const Chain& chain : run.chains) {
    for (const ValueId id : chain) members.push_back(graph_.index[at(id)]);
    sinks.push_back(members.back());
  }
  const auto [first, last] = std::minmax_element(members.begin(), members.end());
  if (*first >= piece_.begin && *last < piece_.end) add(members, sinks, &run);
}

std::int64_t Cones::add(const Members& members, const std::vector<int>& sinks,
                        const ParallelRun* run) {
  std::int64_t operands = 0;
  for (const int m : members)
    operands += static_cast<std::int64_t>(graph_.graph[graph_.ids[at(m)]].inputs.size());
  const std::size_t asked = costs_.asked();
  std::vector<ValueId> values;
  NodeSet set(piece_.end - piece_.begin);
  for (const int m : members) {
    values.push_back(graph_.ids[at(m)]);
    set.add(m - piece_.begin);
  }
  const Group group = make_group(graph_.graph, graph_.wires, std::move(values));
  const GroupCost& cost = run ? costs_.of(group, *run) : costs_.of(group);
  const std::int64_t effort = (costs_.asked() > asked ? kNew : 1) * (1 + operands / kOperands);
  if (cost.family < 0) {
    const Node& node = graph_.graph[group.nodes.front()];
    if (members.size() == 1)
      internal_error("fuse", "no kernel runs the operator ", info(node.op).name, " : ", node.type);
    return effort;
  }
  const double price = cost.microseconds * (run ? 1 + limits_.merging : 1);
  Choice choice{std::move(set), {}, cost, price, run != nullptr};
  for (const int m : choice.nodes.members())
    for (const int c : graph_.consumers[at(piece_.begin + m)])
      if (c < piece_.end && !choice.nodes.has(c - piece_.begin))
        choice.readers.push_back(c - piece_.begin);
  for (const int sink : sinks) choices_[at(sink - piece_.begin)].push_back(choice);
  return effort;
}

}  // namespace tensor::fusion

#include "src/trace/fuse.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace tensor {
namespace {

// A set of compute operators by their index among them.
class NodeSet {
 public:
  explicit NodeSet(std::size_t count = 0) : words_((count + 63) / 64, 0) {}
  bool has(int i) const { return words_[word(i)] >> (i % 64) & 1; }
  void add(int i) { words_[word(i)] |= std::uint64_t{1} << (i % 64); }
  void remove(int i) { words_[word(i)] &= ~(std::uint64_t{1} << (i % 64)); }
  int last() const {
    for (std::size_t w = words_.size(); w-- > 0;)
      if (words_[w] != 0) return static_cast<int>(w) * 64 + 63 - __builtin_clzll(words_[w]);
    return -1;
  }
  std::vector<int> members() const {
    std::vector<int> result;
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::uint64_t rest = words_[w]; rest != 0; rest &= rest - 1)
        result.push_back(static_cast<int>(w) * 64 + __builtin_ctzll(rest));
    return result;
  }
  friend auto operator<=>(const NodeSet&, const NodeSet&) = default;
  std::size_t hash() const {
    std::uint64_t h = 1469598103934665603ull;
    for (const auto w : words_) h = (h ^ w) * 1099511628211ull, h ^= h >> 29;
    return h;
  }

 private:
  static std::size_t word(int i) { return static_cast<std::size_t>(i) / 64; }
  std::vector<std::uint64_t> words_;
};
struct NodeSetHash {
  std::size_t operator()(const NodeSet& s) const { return s.hash(); }
};

// The compute operators with the edges among them; views are contracted.
struct ComputeGraph {
  const Graph& graph;
  const Wiring wires;
  std::vector<ValueId> ids;  // of operator i
  std::vector<std::vector<int>> producers, consumers;
  std::vector<std::vector<ValueId>>
      inputs;  // roots of all operands, constants and graph inputs included
  std::vector<NodeSet> ancestors;

  explicit ComputeGraph(const Graph& g) : graph(g), wires(wiring(g)) {
    std::unordered_map<ValueId, int> index;
    for (ValueId id = 0; id < g.size(); ++id) {
      if (!is_compute(g, id)) continue;
      index[id] = static_cast<int>(ids.size());
      ids.push_back(id);
    }
    producers.resize(ids.size());
    consumers.resize(ids.size());
    inputs.resize(ids.size());
    ancestors.assign(ids.size(), NodeSet(ids.size()));
    for (int i = 0; i < size(); ++i) {
      for (const ValueId input : g[ids[at(i)]].inputs) {
        const ValueId root = wires.root[static_cast<std::size_t>(input)];
        inputs[at(i)].push_back(root);
        const auto found = index.find(root);
        if (found == index.end()) continue;
        const int p = found->second;
        if (std::count(producers[at(i)].begin(), producers[at(i)].end(), p)) continue;
        producers[at(i)].push_back(p);
        consumers[at(p)].push_back(i);
        for (const int a : ancestors[at(p)].members()) ancestors[at(i)].add(a);
        ancestors[at(i)].add(p);
      }
    }
  }

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int size() const { return static_cast<int>(ids.size()); }
  Pattern pattern(int i) const { return info(graph[ids[at(i)]].op).pattern; }
  std::vector<ValueId> values(const NodeSet& set) const {
    std::vector<ValueId> result;
    for (const int i : set.members()) result.push_back(ids[at(i)]);
    return result;
  }
};

Group costed(Group group, const GroupCost& cost) {
  group.family = cost.family;
  group.microseconds = cost.microseconds;
  return group;
}

class Planner {
 public:
  Planner(const Graph& graph, const CostFn& cost, const FuseLimits& limits)
      : g_(graph), cost_(cost), limits_(limits) {}

  FusionPlan run() {
    NodeSet all(static_cast<std::size_t>(g_.size()));
    for (int i = 0; i < g_.size(); ++i) all.add(i);
    best(all);
    FusionPlan plan;
    for (NodeSet rest = all; rest.last() >= 0;) {
      const Step& step = memo_.at(rest);
      plan.groups.push_back(
          costed(make_group(g_.graph, g_.wires, g_.values(step.ending)), step.cost));
      plan.microseconds += step.cost.microseconds;
      for (const int i : step.ending.members()) rest.remove(i);
    }
    std::reverse(plan.groups.begin(), plan.groups.end());
    return plan;
  }

 private:
  struct Step {
    double total = 0;
    NodeSet ending;
    GroupCost cost;
  };
  struct Endings {
    std::vector<NodeSet> sets;
    bool blocked = false;  // a larger group would be an ending once some unrelated operator is gone
  };

  double best(const NodeSet& rest) {
    if (rest.last() < 0) return 0;
    if (const auto known = memo_.find(rest); known != memo_.end()) return known->second.total;
    Step step;
    step.total = std::numeric_limits<double>::infinity();
    for (const NodeSet& ending : endings(rest)) {
      const GroupCost cost = cost_of(ending);
      if (cost.family < 0) continue;
      NodeSet before = rest;
      for (const int i : ending.members()) before.remove(i);
      const double total = best(before) + cost.microseconds;
      if (total < step.total) step = {total, ending, cost};
    }
    if (step.ending.last() < 0) {
      const Node& node = g_.graph[g_.ids[ComputeGraph::at(rest.last())]];
      internal_error("fuse", "no kernel runs the operator ", info(node.op).name, " : ", node.type);
    }
    return memo_.emplace(rest, std::move(step)).first->second.total;
  }

  // Groups may be taken in any order that respects the edges, so it is enough to take the one that
  // holds the last operator of `rest` - unless that group is not an ending yet, because an operator
  // outside reads one of its members.
  std::vector<NodeSet> endings(const NodeSet& rest) {
    Endings found = endings_at(rest, rest.last());
    if (found.blocked)
      for (const int i : rest.members())
        if (i != rest.last() && is_sink(rest, i))
          for (NodeSet& set : endings_at(rest, i).sets) found.sets.push_back(std::move(set));
    return std::move(found.sets);
  }

  bool is_sink(const NodeSet& rest, int i) const {
    const auto& readers = g_.consumers[ComputeGraph::at(i)];
    return std::none_of(readers.begin(), readers.end(), [&](int c) { return rest.has(c); });
  }

  // Every ending of `rest` that grows from the sink `top` by taking in producers and siblings.
  Endings endings_at(const NodeSet& rest, int top) {
    Endings result;
    NodeSet start(static_cast<std::size_t>(g_.size()));
    start.add(top);
    std::set<NodeSet> seen = {start};
    std::vector<NodeSet> open = {start};
    while (!open.empty()) {
      const NodeSet set = std::move(open.back());
      open.pop_back();
      result.sets.push_back(set);
      const auto members = set.members();
      if (static_cast<int>(members.size()) >= limits_.nodes) continue;
      for (const int next : neighbours(rest, set, members, top, result.blocked)) {
        NodeSet grown = set;
        grown.add(next);
        if (seen.insert(grown).second) open.push_back(std::move(grown));
      }
    }
    return result;
  }

  std::vector<int> neighbours(const NodeSet& rest, const NodeSet& set,
                              const std::vector<int>& members, int top, bool& blocked) const {
    std::vector<int> result;
    int heavy = 0;
    for (const int m : members) heavy += is_heavy(m);
    for (const int m : members) {
      if (g_.pattern(m) == Pattern::opaque) return {};
      for (const int p : g_.producers[ComputeGraph::at(m)])
        if (rest.has(p) && !set.has(p) && g_.pattern(p) != Pattern::opaque &&
            heavy + is_heavy(p) <= limits_.heavy && is_free(rest, set, p, top, blocked))
          result.push_back(p);
    }
    for (const int s : siblings(top))
      if (rest.has(s) && !set.has(s)) {
        if (is_sink(rest, s))
          result.push_back(s);
        else if (!g_.ancestors[ComputeGraph::at(top)].has(s) &&
                 !g_.ancestors[ComputeGraph::at(s)].has(top))
          blocked = true;
      }
    return result;
  }

  // Whether every reader of p that is left is in the group.
  bool is_free(const NodeSet& rest, const NodeSet& set, int p, int top, bool& blocked) const {
    bool free = true;
    for (const int c : g_.consumers[ComputeGraph::at(p)]) {
      if (!rest.has(c) || set.has(c)) continue;
      free = false;
      if (!g_.ancestors[ComputeGraph::at(top)].has(c)) blocked = true;
    }
    return free;
  }

  // Matmuls that share an operand with `top`: candidates for one merged kernel (queries, keys and
  // values).
  const std::vector<int>& siblings(int top) const {
    auto [place, is_new] = siblings_.try_emplace(top);
    if (!is_new || !is_heavy(top)) return place->second;
    for (const ValueId input : g_.inputs[ComputeGraph::at(top)]) {
      if (g_.graph[input].kind == NodeKind::constant) continue;
      for (int i = 0; i < g_.size(); ++i) {
        const auto& other = g_.inputs[ComputeGraph::at(i)];
        if (i != top &&
            g_.graph[g_.ids[ComputeGraph::at(i)]].op ==
                g_.graph[g_.ids[ComputeGraph::at(top)]].op &&
            std::count(other.begin(), other.end(), input))
          place->second.push_back(i);
      }
    }
    return place->second;
  }

  int is_heavy(int i) const { return g_.pattern(i) == Pattern::complex_out_fusable; }

  const GroupCost& cost_of(const NodeSet& set) {
    const auto known = set_costs_.find(set);
    if (known != set_costs_.end()) return known->second;
    const Group group = make_group(g_.graph, g_.wires, g_.values(set));
    auto [place, is_new] = structure_costs_.try_emplace(structure_of(g_.graph, group));
    if (is_new) place->second = cost_(g_.graph, group);
    return set_costs_.emplace(set, place->second).first->second;
  }

  const ComputeGraph g_;
  const CostFn& cost_;
  const FuseLimits limits_;
  std::unordered_map<NodeSet, Step, NodeSetHash> memo_;
  std::unordered_map<NodeSet, GroupCost, NodeSetHash> set_costs_;
  std::unordered_map<std::string, GroupCost> structure_costs_;
  mutable std::unordered_map<int, std::vector<int>> siblings_;
};

}  // namespace

FusionPlan fuse(const Graph& graph, const CostFn& cost, const FuseLimits& limits) {
  return Planner(graph, cost, limits).run();
}

FusionPlan no_fusion(const Graph& graph, const CostFn& cost) {
  const Wiring wires = wiring(graph);
  FusionPlan plan;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!is_compute(graph, id)) continue;
    const Group group = make_group(graph, wires, {id});
    plan.groups.push_back(costed(group, cost(graph, group)));
    plan.microseconds += plan.groups.back().microseconds;
  }
  return plan;
}

FusionPlan greedy_fusion(const Graph& graph, const CostFn& cost) {
  const Wiring wires = wiring(graph);
  std::vector<int> group_of(static_cast<std::size_t>(graph.size()), -1);
  std::vector<Group> groups;
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!is_compute(graph, id)) continue;
    Group own = make_group(graph, wires, {id});
    own = costed(own, cost(graph, own));
    // Only the group of the latest producer can take the operator in without closing a circle.
    int latest = -1;
    for (const ValueId input : graph[id].inputs)
      latest = std::max(
          latest, group_of[static_cast<std::size_t>(wires.root[static_cast<std::size_t>(input)])]);
    if (latest >= 0) {
      std::vector<ValueId> nodes = groups[static_cast<std::size_t>(latest)].nodes;
      nodes.push_back(id);
      Group merged = make_group(graph, wires, std::move(nodes));
      merged = costed(merged, cost(graph, merged));
      if (merged.family >= 0 &&
          merged.microseconds <=
              groups[static_cast<std::size_t>(latest)].microseconds + own.microseconds) {
        groups[static_cast<std::size_t>(latest)] = std::move(merged);
        group_of[static_cast<std::size_t>(id)] = latest;
        continue;
      }
    }
    group_of[static_cast<std::size_t>(id)] = static_cast<int>(groups.size());
    groups.push_back(std::move(own));
  }
  FusionPlan plan;
  plan.groups = std::move(groups);
  for (const Group& group : plan.groups) plan.microseconds += group.microseconds;
  return plan;
}

}  // namespace tensor

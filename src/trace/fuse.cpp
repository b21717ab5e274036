#include "src/trace/fuse.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "src/trace/node_set.h"

namespace tensor {
namespace {

// The compute operators in the order in which they are planned, with the edges among them; views
// are contracted.
struct ComputeGraph {
  const Fusible& fusible;
  const Graph& graph;
  const Wiring wires;
  std::vector<ValueId> ids;  // of operator i
  std::vector<int> index;    // of a value; -1 when no operator computes it
  std::vector<std::vector<int>> producers, consumers;
  std::vector<NodeSet> ancestors;

  explicit ComputeGraph(const Fusible& f) : fusible(f), graph(f.laid.graph), wires(wiring(graph)) {
    order();
    producers.resize(ids.size());
    consumers.resize(ids.size());
    ancestors.assign(ids.size(), NodeSet(size()));
    for (int i = 0; i < size(); ++i) {
      for (const ValueId input : graph[ids[at(i)]].inputs) {
        const int p = index[at(wires.root[at(input)])];
        if (p < 0 || std::count(producers[at(i)].begin(), producers[at(i)].end(), p)) continue;
        producers[at(i)].push_back(p);
        consumers[at(p)].push_back(i);
        ancestors[at(i)].add(ancestors[at(p)]);
        ancestors[at(i)].add(p);
      }
    }
  }

  int size() const { return static_cast<int>(ids.size()); }
  Pattern pattern(int i) const { return info(graph[ids[at(i)]].op).pattern; }
  int is_heavy(int i) const { return pattern(i) == Pattern::complex_out_fusable; }
  std::vector<ValueId> values(const NodeSet& set) const {
    std::vector<ValueId> result;
    for (const int i : set.members()) result.push_back(ids[at(i)]);
    return result;
  }
  NodeSet set_of(const std::vector<int>& members) const {
    NodeSet result(size());
    for (const int i : members) result.add(i);
    return result;
  }

 private:
  // That of the program, but parallel products stand together: when the last of them is planned,
  // nothing that reads any of them is left.
  void order() {
    index.assign(at(graph.size()), -1);
    const auto place = [&](ValueId id) {
      if (index[at(id)] >= 0) return;
      index[at(id)] = size();
      ids.push_back(id);
    };
    // Of chains that agree for some operators and then part, all versions together.
    std::vector<std::vector<const Parallel*>> families;
    std::map<ValueId, std::size_t> family_of;
    for (const Parallel& chains : fusible.parallel) {
      const auto known = family_of.find(chains.front().front());
      const std::size_t family = known == family_of.end() ? families.size() : known->second;
      if (family == families.size()) families.emplace_back();
      families[family].push_back(&chains);
      for (const Chain& chain : chains) family_of.try_emplace(chain.front(), family);
    }
    for (ValueId id = 0; id < graph.size(); ++id) {
      if (!is_compute(graph, id)) continue;
      if (const auto family = family_of.find(id); family != family_of.end() && index[at(id)] < 0)
        for (const Parallel* chains : families[family->second])
          for (const Chain& chain : *chains) std::for_each(chain.begin(), chain.end(), place);
      place(id);
    }
  }
};

Group costed(Group group, const GroupCost& cost) {
  group.family = cost.family;
  group.microseconds = cost.microseconds;
  group.schedule = cost.schedule;
  return group;
}

// Which groups need which others first.
class Dependences {
 public:
  Dependences(const Wiring& wires, const std::vector<Group>& groups) : writers_(groups.size()) {
    std::map<ValueId, std::size_t> writer;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const ValueId id : groups[g].writes) writer[id] = g;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const ValueId id : groups[g].reads)
        if (const auto found = writer.find(wires.root[at(id)]); found != writer.end())
          writers_[g].insert(found->second);
  }
  const std::set<std::size_t>& writers_for(std::size_t reader) const { return writers_[reader]; }
  /// Whether the reader needs a third group that needs the writer; of groups in an order in which
  /// they can run.
  bool leads_around(std::size_t writer, std::size_t reader) const {
    std::vector<std::size_t> open(writers_[reader].begin(), writers_[reader].end());
    std::erase(open, writer);
    std::set<std::size_t> known(open.begin(), open.end());
    while (!open.empty()) {
      const std::size_t g = open.back();
      open.pop_back();
      if (g == writer) return true;
      for (const std::size_t w : writers_[g])
        if (w >= writer && known.insert(w).second) open.push_back(w);
    }
    return false;
  }

 private:
  std::vector<std::set<std::size_t>> writers_;  // of what a group reads
};

// Groups in the order of the program as far as what they read allows.
std::vector<Group> in_program_order(const Wiring& wires, std::vector<Group> groups) {
  const Dependences needs(wires, groups);
  std::vector<std::set<std::size_t>> waits(groups.size());
  std::vector<std::vector<std::size_t>> next(groups.size());
  std::set<std::pair<ValueId, std::size_t>> ready;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    waits[g] = needs.writers_for(g);
    for (const std::size_t writer : waits[g]) next[writer].push_back(g);
    if (waits[g].empty()) ready.emplace(groups[g].nodes.back(), g);
  }
  std::vector<Group> result;
  while (!ready.empty()) {
    const std::size_t g = ready.begin()->second;
    ready.erase(ready.begin());
    for (const std::size_t reader : next[g]) {
      waits[reader].erase(g);
      if (waits[reader].empty()) ready.emplace(groups[reader].nodes.back(), reader);
    }
    result.push_back(std::move(groups[g]));
  }
  return result;
}

class Planner {
 public:
  Planner(const Fusible& fusible, const CostFn& cost, const FuseLimits& limits)
      : g_(fusible), cost_(cost), limits_(limits), structures_(fusible.laid) {}

  FusionPlan run() {
    choices_.resize(at(g_.size()));
    for (int top = 0; top < g_.size(); ++top) find_cones(top);
    for (const ParallelRun& run : g_.fusible.runs) add_run(run);
    NodeSet all(g_.size());
    for (int i = 0; i < g_.size(); ++i) all.add(i);
    best(all);
    FusionPlan plan;
    std::vector<Group> groups;
    for (NodeSet rest = all; rest.last() >= 0;) {
      const Choice& choice = *memo_.at(rest).choice;
      groups.push_back(group_of(choice));
      rest.remove(choice.nodes);
    }
    plan.groups = in_program_order(g_.wires, std::move(groups));
    while (limits_.joins && join(plan.groups)) continue;
    for (const Group& group : plan.groups) plan.microseconds += group.microseconds;
    return plan;
  }

  // After run().
  std::vector<Group> alternatives(double share) {
    NodeSet all(g_.size());
    for (int i = 0; i < g_.size(); ++i) all.add(i);
    const auto for_each_step = [&](auto&& use) {
      for (NodeSet rest = all; rest.last() >= 0;) {
        const Step chosen = memo_.at(rest);
        use(rest, chosen);
        rest.remove(chosen.choice->nodes);
      }
    };
    std::set<std::string> known;
    for_each_step([&](const NodeSet&, const Step& chosen) {
      known.insert(structures_.of(group_of(*chosen.choice)));
    });
    std::vector<Group> result;
    for_each_step([&](const NodeSet& rest, const Step& chosen) {
      for_each_ending(rest, [&](const Choice& choice, const NodeSet& before) {
        if (choice.is_run || best(before) + choice.price - chosen.total > share * choice.price)
          return;
        Group group = group_of(choice);
        if (known.insert(structures_.of(group)).second) result.push_back(std::move(group));
      });
    });
    return result;
  }

 private:
  // A group that some kernel runs.
  struct Choice {
    NodeSet nodes;
    std::vector<int> readers;  // operators outside that read a member
    GroupCost cost;
    double price;  // what it counts in the search
    bool is_run;   // of parallel products
  };
  struct Step {
    double total = 0;
    const Choice* choice = nullptr;
  };

  Group group_of(const Choice& choice) const {
    return costed(make_group(g_.graph, g_.wires, g_.values(choice.nodes)), choice.cost);
  }

  // ---- What may be a group.

  // Every convex set of operators that all lead to `top`. Members are added in descending order,
  // so that each set is found once, and none before all that lies between it and `top`.
  void find_cones(int top) {
    std::vector<std::vector<int>> open = {{top}};
    for (std::size_t next = 0; next < open.size(); ++next) {
      const std::vector<int> members = open[next];
      add_choice(g_.set_of(members), {top});
      if (g_.pattern(top) == Pattern::opaque || static_cast<int>(members.size()) >= limits_.nodes)
        continue;
      int heavy = 0;
      for (const int m : members) heavy += g_.is_heavy(m);
      std::set<int> producers;
      for (const int m : members)
        for (const int p : g_.producers[at(m)])
          if (p < members.back()) producers.insert(p);
      for (const int p : producers)
        if (static_cast<int>(open.size()) < limits_.groups && g_.pattern(p) != Pattern::opaque &&
            heavy + g_.is_heavy(p) <= limits_.heavy && is_convex_with(members, p)) {
          open.push_back(members);
          open.back().push_back(p);
        }
    }
  }

  // Whether all readers of p that lead to the group are in it.
  bool is_convex_with(const std::vector<int>& members, int p) const {
    const NodeSet& before = g_.ancestors[at(members.front())];
    const auto& readers = g_.consumers[at(p)];
    return std::all_of(readers.begin(), readers.end(), [&](int c) {
      return !before.has(c) || std::count(members.begin(), members.end(), c) > 0;
    });
  }

  // Parallel products as one group: the last operator of any chain may be the group's last.
  void add_run(const ParallelRun& run) {
    NodeSet set(g_.size());
    std::vector<int> sinks;
    for (const ValueId id : run.lead) set.add(g_.index[at(id)]);
    for (const Chain& chain : run.chains) {
      for (const ValueId id : chain) set.add(g_.index[at(id)]);
      sinks.push_back(g_.index[at(chain.back())]);
    }
    add_choice(set, sinks, &run);
  }

  void add_choice(const NodeSet& set, const std::vector<int>& sinks,
                  const ParallelRun* run = nullptr) {
    const Group group = make_group(g_.graph, g_.wires, g_.values(set));
    const GroupCost& cost = cost_of(group, run);
    if (cost.family < 0) return;
    const double price = cost.microseconds * (run ? 1 + limits_.merging : 1);
    Choice choice{set, {}, cost, price, run != nullptr};
    for (const int m : set.members())
      for (const int c : g_.consumers[at(m)])
        if (!set.has(c)) choice.readers.push_back(c);
    for (const int sink : sinks) choices_[at(sink)].push_back(choice);
  }

  const GroupCost& cost_of(const Group& group, const ParallelRun* run = nullptr) {
    const auto [known, is_new] = costs_.try_emplace(structures_.of(group));
    if (is_new) {
      if (run) {
        const Isolated merged = merged_alone(g_.fusible.laid, *run);
        known->second = cost_(merged.laid, merged.group);
      } else {
        known->second = cost_(g_.fusible.laid, group);
      }
    }
    return known->second;
  }

  // ---- The cheapest of them.

  double best(const NodeSet& rest) {
    if (rest.last() < 0) return 0;
    if (const auto known = memo_.find(rest); known != memo_.end()) return known->second.total;
    ++states_;
    Step step{std::numeric_limits<double>::infinity(), nullptr};
    for_each_ending(rest, [&](const Choice& choice, const NodeSet& before) {
      const double total = best(before) + choice.price;
      if (total < step.total) step = {total, &choice};
    });
    if (!step.choice) {
      const Node& node = g_.graph[g_.ids[at(rest.last())]];
      internal_error("fuse", "no kernel runs the operator ", info(node.op).name, " : ", node.type);
    }
    return memo_.emplace(rest, step).first->second.total;
  }

  // Some group holds the last operator. It can be taken first, unless an operator that is left
  // reads one of its members: then something after that operator comes first.
  template <class F>
  void for_each_ending(const NodeSet& rest, F&& use) {
    std::vector<int> sinks = {rest.last()};
    for (std::size_t s = 0; s < sinks.size(); ++s)
      for (const Choice& choice : choices_[at(sinks[s])]) {
        if (!rest.contains(choice.nodes)) continue;
        bool is_ending = true;
        for (const int reader : choice.readers)
          if (rest.has(reader)) {
            is_ending = false;
            if (states_ <= limits_.states) add_sinks_after(reader, rest, sinks);
          }
        if (!is_ending) continue;
        NodeSet before = rest;
        before.remove(choice.nodes);
        use(choice, before);
      }
  }

  void add_sinks_after(int reader, const NodeSet& rest, std::vector<int>& sinks) const {
    for (int i = reader; i <= rest.last(); ++i) {
      if (!rest.has(i) || (i != reader && !g_.ancestors[at(i)].has(reader))) continue;
      const auto& readers = g_.consumers[at(i)];
      if (std::none_of(readers.begin(), readers.end(), [&](int c) { return rest.has(c); }) &&
          std::count(sinks.begin(), sinks.end(), i) == 0)
        sinks.push_back(i);
    }
  }

  // ---- Groups that lead to several operators.

  // The first elementwise group for which this is cheaper joins the best of those that write what
  // it reads: as its operators lead elsewhere than theirs, no ending has both.
  bool join(std::vector<Group>& groups) {
    const Dependences needs(g_.wires, groups);
    for (std::size_t reader = 0; reader < groups.size(); ++reader) {
      if (!is_elementwise(groups[reader])) continue;
      std::size_t best = reader;
      Group joined;
      double gain = 0;
      for (const std::size_t writer : needs.writers_for(reader)) {
        std::vector<ValueId> nodes = groups[writer].nodes;
        nodes.insert(nodes.end(), groups[reader].nodes.begin(), groups[reader].nodes.end());
        if (static_cast<int>(nodes.size()) > limits_.nodes || needs.leads_around(writer, reader))
          continue;
        Group both = make_group(g_.graph, g_.wires, std::move(nodes));
        both = costed(both, cost_of(both));
        const double saved =
            groups[writer].microseconds + groups[reader].microseconds - both.microseconds;
        if (saved > gain) best = writer, joined = std::move(both), gain = saved;
      }
      if (best == reader) continue;
      groups[reader] = std::move(joined);
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(best));
      groups = in_program_order(g_.wires, std::move(groups));
      return true;
    }
    return false;
  }

  bool is_elementwise(const Group& group) const {
    return std::all_of(group.nodes.begin(), group.nodes.end(), [&](ValueId id) {
      return info(g_.graph[id].op).pattern == Pattern::elementwise;
    });
  }

  const ComputeGraph g_;
  const CostFn& cost_;
  const FuseLimits limits_;
  const Structures structures_;
  std::unordered_map<std::string, GroupCost> costs_;  // of structures
  std::vector<std::vector<Choice>> choices_;          // that end in an operator
  std::unordered_map<NodeSet, Step, NodeSet::Hash> memo_;
  int states_ = 0;
};

}  // namespace

FusionPlan fuse(const Fusible& fusible, const CostFn& cost, const FuseLimits& limits) {
  return Planner(fusible, cost, limits).run();
}

Fusion fuse_with_alternatives(const Fusible& fusible, const CostFn& cost, double share,
                              const FuseLimits& limits) {
  Planner planner(fusible, cost, limits);
  FusionPlan plan = planner.run();
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

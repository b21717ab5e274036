#include "src/trace/fuse/join.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>

namespace tensor::fusion {
namespace {

// Which groups need which others first.
class Dependences {
 public:
  Dependences(const Wiring& wires, const std::vector<Group>& groups) : writers_(groups.size()) {
    std::unordered_map<ValueId, std::size_t> writer;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const ValueId id : groups[g].writes) writer[id] = g;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const ValueId id : groups[g].reads)
        if (const auto found = writer.find(wires.root[at(id)]); found != writer.end())
          writers_[g].push_back(found->second);
      std::sort(writers_[g].begin(), writers_[g].end());
      writers_[g].erase(std::unique(writers_[g].begin(), writers_[g].end()), writers_[g].end());
    }
  }
  const std::vector<std::size_t>& writers_for(std::size_t reader) const { return writers_[reader]; }
  /// Whether the reader needs a third group that needs the writer; of groups in an order in which
  /// they can run.
  bool leads_around(std::size_t writer, std::size_t reader) const {
    std::vector<std::size_t> open = writers_[reader];
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
  std::vector<std::vector<std::size_t>> writers_;  // of what a group reads
};

bool is_elementwise(const Graph& graph, const Group& group) {
  return std::all_of(group.nodes.begin(), group.nodes.end(),
                     [&](ValueId id) { return pattern_of(graph[id]) == Pattern::elementwise; });
}

class Joiner {
 public:
  Joiner(const LaidOutGraph& laid, const Wiring& wires, GroupCosts& costs, int most_nodes)
      : graph_(laid.graph), wires_(wires), costs_(costs), most_nodes_(most_nodes) {}

  // The first elementwise group for which this is cheaper joins the best of those that write what
  // it reads.
  bool join(std::vector<Group>& groups) {
    const Dependences needs(wires_, groups);
    for (std::size_t reader = 0; reader < groups.size(); ++reader) {
      if (!is_elementwise(graph_, groups[reader])) continue;
      std::size_t best = reader;
      Group joined;
      double gain = 0;
      for (const std::size_t writer : needs.writers_for(reader)) {
        const std::array pair = name_of(groups[writer], groups[reader]);
        if (pair[1] + pair[3] > most_nodes_ || is_dearer_.contains(pair) ||
            needs.leads_around(writer, reader))
          continue;
        Group both = together(groups[writer], groups[reader]);
        const double saved =
            groups[writer].microseconds + groups[reader].microseconds - both.microseconds;
        if (saved > gain) best = writer, joined = std::move(both), gain = saved;
        if (saved <= 0) is_dearer_.insert(pair);
      }
      if (best == reader) continue;
      groups[reader] = std::move(joined);
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(best));
      groups = in_program_order(wires_, std::move(groups));
      return true;
    }
    return false;
  }

 private:
  // A group that joins another grows: its first operator and its size tell it from all others.
  static std::array<int, 4> name_of(const Group& writer, const Group& reader) {
    return {writer.nodes.front(), static_cast<int>(writer.nodes.size()), reader.nodes.front(),
            static_cast<int>(reader.nodes.size())};
  }

  Group together(const Group& a, const Group& b) {
    std::vector<ValueId> nodes = a.nodes;
    nodes.insert(nodes.end(), b.nodes.begin(), b.nodes.end());
    const Group both = make_group(graph_, wires_, std::move(nodes));
    return costed(both, costs_.of(both));
  }

  const Graph& graph_;
  const Wiring& wires_;
  GroupCosts& costs_;
  const int most_nodes_;
  std::set<std::array<int, 4>> is_dearer_;
};

}  // namespace

std::vector<Group> in_program_order(const Wiring& wires, std::vector<Group> groups) {
  const Dependences needs(wires, groups);
  std::vector<std::size_t> waits(groups.size());
  std::vector<std::vector<std::size_t>> next(groups.size());
  std::set<std::pair<ValueId, std::size_t>> ready;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    waits[g] = needs.writers_for(g).size();
    for (const std::size_t writer : needs.writers_for(g)) next[writer].push_back(g);
    if (waits[g] == 0) ready.emplace(groups[g].nodes.back(), g);
  }
  std::vector<Group> result;
  while (!ready.empty()) {
    const std::size_t g = ready.begin()->second;
    ready.erase(ready.begin());
    for (const std::size_t reader : next[g])
      if (--waits[reader] == 0) ready.emplace(groups[reader].nodes.back(), reader);
    result.push_back(std::move(groups[g]));
  }
  return result;
}

std::vector<Group> join_elementwise(const LaidOutGraph& laid, const Wiring& wires,
                                    std::vector<Group> groups, GroupCosts& costs, int most_nodes) {
  Joiner joiner(laid, wires, costs, most_nodes);
  groups = in_program_order(wires, std::move(groups));
  while (joiner.join(groups)) continue;
  return groups;
}

}  // namespace tensor::fusion

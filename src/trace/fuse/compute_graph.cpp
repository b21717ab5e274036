#include "src/trace/fuse/compute_graph.h"

#include <algorithm>
#include <map>

namespace tensor::fusion {

ComputeGraph::ComputeGraph(const Fusible& f)
    : fusible(f), graph(f.laid.graph), wires(wiring(graph)) {
  order();
  producers.resize(ids.size());
  consumers.resize(ids.size());
  for (int i = 0; i < size(); ++i) {
    for (const ValueId input : graph[ids[at(i)]].inputs) {
      const int p = index[at(wires.root[at(input)])];
      if (p < 0 || (!consumers[at(p)].empty() && consumers[at(p)].back() == i)) continue;
      producers[at(i)].push_back(p);
      consumers[at(p)].push_back(i);
    }
  }
}

Pattern ComputeGraph::pattern(int i) const { return pattern_of(graph[ids[at(i)]]); }

// That of the program, but parallel products stand together: when the last of them is planned,
// nothing that reads any of them is left.
void ComputeGraph::order() {
  index.assign(at(graph.size()), -1);
  const auto place = [&](ValueId id) {
    if (index[at(id)] >= 0) return;
    index[at(id)] = size();
    ids.push_back(id);
  };
  // A family has all versions of chains that agree for some operators and then part.
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

std::vector<Piece> pieces_of(const ComputeGraph& graph, int most) {
  // crossing[b]: values made before operator b and read from there on.
  std::vector<int> crossing(at(graph.size() + 1), 0);
  for (int i = 0; i < graph.size(); ++i) {
    const auto& readers = graph.consumers[at(i)];
    if (readers.empty()) continue;
    ++crossing[at(i + 1)];
    --crossing[at(readers.back() + 1)];
  }
  for (int b = 1; b <= graph.size(); ++b) crossing[at(b)] += crossing[at(b - 1)];
  std::vector<Piece> result;
  for (int begin = 0; begin < graph.size();) {
    int end = graph.size();
    if (end - begin > most) {
      const auto first = crossing.begin() + begin;
      end = static_cast<int>(std::min_element(first + most / 2, first + most) - crossing.begin());
    }
    result.push_back({begin, end});
    begin = end;
  }
  return result;
}

}  // namespace tensor::fusion

#include "src/runtime/describe.h"

#include <iomanip>
#include <map>
#include <sstream>

namespace tensor::detail {

std::string operators_of(const Graph& graph, const Group& group) {
  std::string result;
  for (const ValueId id : group.nodes)
    result += (result.empty() ? "" : ", ") + std::string(info(graph[id].op).name);
  return result;
}

std::string place_of(const Graph& graph, const Group& group) {
  for (const ValueId id : group.nodes)
    if (!graph[id].where.empty()) return graph[id].where;
  return "";
}

std::string merged_place(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string result, x, y;
  while (std::getline(left, x, '.')) {
    if (!std::getline(right, y, '.')) break;
    result += (result.empty() ? "" : ".") + (x == y ? x : std::string("*"));
  }
  return result;
}

std::string plan_text(const Graph& graph, const FusionPlan& plan, const Target& target) {
  struct Kind {
    int count = 0;
    const Group* group = nullptr;  // the first of them
    std::string place, apart;
    double apart_us = 0;
  };
  const Wiring wires = wiring(graph);
  const Structures structures(graph);
  std::vector<Kind> kinds;
  std::map<std::string, std::size_t> known;
  double all_apart = 0;
  for (const Group& group : plan.groups) {
    const auto [place, is_new] = known.try_emplace(structures.of(group), kinds.size());
    if (is_new) {
      Kind kind{0, &group, place_of(graph, group), {}, 0};
      std::ostringstream apart;
      apart << std::fixed << std::setprecision(1);
      for (const ValueId id : group.nodes) {
        const double us = target.cost(graph, make_group(graph, wires, {id})).microseconds;
        kind.apart_us += us;
        apart << (id == group.nodes.front() ? "" : ", ") << info(graph[id].op).name << ' ' << us;
      }
      kind.apart = apart.str();
      kinds.push_back(std::move(kind));
    }
    Kind& kind = kinds[place->second];
    ++kind.count;
    kind.place = merged_place(kind.place, place_of(graph, group));
    all_apart += kind.apart_us;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << plan.groups.size() << " groups of " << kinds.size()
       << " kinds, estimated " << plan.microseconds / 1e3 << " ms; their operators apart "
       << all_apart / 1e3 << " ms\n";
  for (const Kind& kind : kinds) {
    const Group& group = *kind.group;
    text << '\n' << std::setw(4) << kind.count << " x " << operators_of(graph, group) << " ->";
    for (const ValueId id : group.writes) text << ' ' << graph.type(id);
    text << "\n       " << target.family_name(group.family) << ", " << group.microseconds << " us";
    if (group.nodes.size() > 1) text << "; apart " << kind.apart_us << ": " << kind.apart;
    text << '\n';
    if (!kind.place.empty()) text << "       " << kind.place << '\n';
  }
  return text.str();
}

}  // namespace tensor::detail

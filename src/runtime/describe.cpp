#include "src/runtime/describe.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <vector>

#include "tensor/text.h"

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

namespace {

constexpr std::size_t kMostNames = 4;  // more are no easier to read than a star

std::vector<std::string> split(std::string_view text, std::string_view between) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(between), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + between.size(), text.size()));
  }
  return parts;
}

// "{key, query}" or "key" as names.
std::vector<std::string> names_of(const std::string& part) {
  if (!part.starts_with('{')) return {part};
  return split(std::string_view(part).substr(1, part.size() - 2), ", ");
}

std::string merged_part(const std::string& a, const std::string& b) {
  if (a == b) return a;
  std::vector<std::string> names = names_of(a);
  for (const std::string& name : names_of(b))
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  const bool has_number = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "*" || name.find_first_not_of("0123456789") == std::string::npos;
  });
  if (has_number || names.size() > kMostNames) return "*";
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "{" : ", ") + name;
  return text + "}";
}

}  // namespace

std::string merged_place(const std::string& a, const std::string& b) {
  const std::vector<std::string> left = split(a, "."), right = split(b, ".");
  std::string result;
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
    result += (result.empty() ? "" : ".") + merged_part(left[i], right[i]);
  return result;
}

std::string plan_text(const LaidOutGraph& laid, const FusionPlan& plan, const Target& target) {
  const Graph& graph = laid.graph;
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
      TextWriter apart;
      apart << std::fixed << std::setprecision(1);
      for (const ValueId id : group.nodes) {
        const double us = target.offers->cost(laid, make_group(graph, wires, {id})).microseconds;
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
  TextWriter text;
  text << std::fixed << std::setprecision(1) << plan.groups.size() << " groups of " << kinds.size()
       << " kinds, estimated " << plan.microseconds / 1e3 << " ms; their operators apart "
       << all_apart / 1e3 << " ms\n";
  for (const Kind& kind : kinds) {
    const Group& group = *kind.group;
    text << '\n' << std::setw(4) << kind.count << " x " << operators_of(graph, group) << " ->";
    for (const ValueId id : group.writes) text << ' ' << graph.type(id);
    text << "\n       " << target.offers->name(group.family) << ", " << group.microseconds << " us";
    if (group.nodes.size() > 1) text << "; apart " << kind.apart_us << ": " << kind.apart;
    text << '\n';
    if (!kind.place.empty()) text << "       " << kind.place << '\n';
  }
  return text.str();
}

std::string schedule_text(const LaidOutGraph& laid, const FusionPlan& plan, const Target& target,
                          const Kernels& kernels) {
  struct Kind {
    int count = 0;
    std::string place;
  };
  std::map<std::string, Kind> kinds;
  std::vector<std::string> order;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    const std::string text = operators_of(laid.graph, group) + "\n       " +
                             std::string(target.offers->name(group.family)) + ": " +
                             (group.schedule.empty() ? "one way only" : group.schedule) +
                             "\n       " + kernels.description(g);
    const auto [kind, is_new] = kinds.try_emplace(text, Kind{0, place_of(laid.graph, group)});
    if (is_new) order.push_back(text);
    ++kind->second.count;
    kind->second.place = merged_place(kind->second.place, place_of(laid.graph, group));
  }
  TextWriter text;
  for (const std::string& kind : order) {
    const auto& [count, place] = kinds.at(kind);
    text << '\n' << std::setw(4) << count << " x " << kind << '\n';
    if (!place.empty()) text << "       " << place << '\n';
  }
  return text.str();
}

}  // namespace tensor::detail

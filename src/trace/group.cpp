// Groups of operators: how a graph is wired without its views, a group's reads and writes, and its
// structure as text.
#include <algorithm>
#include <map>
#include <sstream>

#include "src/trace/fuse.h"

namespace tensor {
namespace {

bool is_in(const std::vector<ValueId>& nodes, ValueId id) {
  return std::binary_search(nodes.begin(), nodes.end(), id);
}

std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }

}  // namespace

bool is_compute(const Graph& graph, ValueId id) {
  return graph[id].kind == NodeKind::operation && info(graph[id].op).pattern != Pattern::view;
}

Wiring wiring(const Graph& graph) {
  Wiring result;
  result.readers.resize(at(graph.size()));
  result.returned.resize(at(graph.size()), false);
  for (ValueId id = 0; id < graph.size(); ++id) {
    const bool is_view = graph[id].kind == NodeKind::operation && !is_compute(graph, id);
    result.root.push_back(is_view ? result.root[at(graph[id].inputs[0])] : id);
    if (!is_compute(graph, id)) continue;
    for (const ValueId input : graph[id].inputs) {
      auto& readers = result.readers[at(result.root[at(input)])];
      if (readers.empty() || readers.back() != id) readers.push_back(id);
    }
  }
  for (const ValueId id : graph.outputs()) result.returned[at(result.root[at(id)])] = true;
  return result;
}

Group make_group(const Graph& graph, const Wiring& wiring, std::vector<ValueId> nodes) {
  std::sort(nodes.begin(), nodes.end());
  Group group;
  for (const ValueId id : nodes) {
    for (const ValueId input : graph[id].inputs)
      if (!is_in(nodes, wiring.root[at(input)]) &&
          !std::count(group.reads.begin(), group.reads.end(), input))
        group.reads.push_back(input);
    const auto& readers = wiring.readers[at(id)];
    if (wiring.returned[at(id)] ||
        std::any_of(readers.begin(), readers.end(), [&](ValueId r) { return !is_in(nodes, r); }))
      group.writes.push_back(id);
  }
  group.nodes = std::move(nodes);
  return group;
}

std::string structure_of(const Graph& graph, const Group& group) {
  std::ostringstream text;
  std::map<ValueId, int> names;  // members, views among them and reads, in the order of appearance
  // Views between members are part of the structure, as are those through which a group reads.
  const auto name = [&](auto&& self, ValueId id) -> int {
    if (const auto known = names.find(id); known != names.end()) return known->second;
    const Node& node = graph[id];
    std::ostringstream line;
    if (is_in(group.nodes, id) || (node.kind == NodeKind::operation && !is_compute(graph, id))) {
      line << static_cast<int>(node.op) << '(' << node.attrs << ')';
      for (const ValueId input : node.inputs) line << ' ' << self(self, input);
    } else {
      line << (node.kind == NodeKind::constant ? "constant" : "value");
    }
    const int number = static_cast<int>(names.size());
    names.emplace(id, number);
    text << number << '=' << line.str() << ':' << node.type
         << (std::count(group.writes.begin(), group.writes.end(), id) ? "!" : "") << ';';
    return number;
  };
  for (const ValueId id : group.nodes) name(name, id);
  return text.str();
}

}  // namespace tensor

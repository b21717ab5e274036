#include "src/trace/group.h"

#include <algorithm>
#include <unordered_map>

#include "src/core/key.h"

namespace tensor {
namespace {

bool is_in(const std::vector<ValueId>& nodes, ValueId id) {
  return std::binary_search(nodes.begin(), nodes.end(), id);
}

}  // namespace

bool is_compute(const Graph& graph, ValueId id) {
  return graph[id].kind == NodeKind::operation && info(graph[id].op).pattern != Pattern::view;
}

bool is_quantized(const Graph& graph, ValueId id) {
  return graph.is_op(id, Op::quantized_matmul) || graph.is_op(id, Op::quantized_conv2d);
}

bool is_view(const Graph& graph, ValueId id) {
  return graph[id].kind == NodeKind::operation && info(graph[id].op).pattern == Pattern::view;
}

bool is_choice(const Node& node) { return node.op == Op::where && node.attrs.flag(kLazy, false); }

Pattern pattern_of(const Node& node) {
  return is_choice(node) ? Pattern::opaque : info(node.op).pattern;
}

ValueId root_of(const Graph& graph, ValueId id) {
  while (is_view(graph, id)) id = graph[id].inputs[0];
  return id;
}

Wiring wiring(const Graph& graph) {
  Wiring result;
  result.readers.resize(at(graph.size()));
  result.returned.resize(at(graph.size()), false);
  for (ValueId id = 0; id < graph.size(); ++id) {
    result.root.push_back(is_view(graph, id) ? result.root[at(graph[id].inputs[0])] : id);
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
          std::find(group.reads.begin(), group.reads.end(), input) == group.reads.end())
        group.reads.push_back(input);
    const auto& readers = wiring.readers[at(id)];
    if (wiring.returned[at(id)] ||
        std::any_of(readers.begin(), readers.end(), [&](ValueId r) { return !is_in(nodes, r); }))
      group.writes.push_back(id);
  }
  group.nodes = std::move(nodes);
  return group;
}

void add_seen_values(Key& key, const Tensor& constant) {
  if (is_floating(constant.dtype())) {
    if (constant.size() == 1) key << constant.item<double>();
    return;
  }
  if (constant.size() == 0 || (constant.size() > 1 && constant.dtype() != i64)) return;
  const auto values = constant.to_vector<std::int64_t>();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  key << *least << *most;
}

Structures::Structures(const Graph& graph, const std::vector<Layout>* layouts) : graph_(graph) {
  std::unordered_map<std::string, int> numbers;
  const auto number = [&](const Key& key) {
    const int next = static_cast<int>(numbers.size());
    return numbers.try_emplace(key.bytes(), next).first->second;
  };
  for (ValueId id = 0; id < graph_.size(); ++id) {
    const Node& node = graph_[id];
    Key key;
    key << (node.kind == NodeKind::constant) << node.type;
    if (layouts) key << (*layouts)[at(id)].strides << (*layouts)[at(id)].offset;
    if (layouts && node.kind == NodeKind::constant) add_seen_values(key, node.constant);
    outside_.push_back(number(key));
    if (node.kind == NodeKind::operation) key << node.op << node.attrs;
    inside_.push_back(number(key));
  }
}

std::string Structures::of(const Group& group) const {
  Key key;
  // Members, views among them and reads, named by the order of their appearance. Views between
  // members are part of the structure, as are those through which a group reads.
  std::vector<ValueId> names;  // few: looked through faster than hashed
  const auto name_of = [&](ValueId id) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), id) - names.begin());
  };
  const auto is_inside = [&](ValueId id) { return is_in(group.nodes, id) || is_view(graph_, id); };
  for (const ValueId member : group.nodes)
    visit_inputs_first(
        graph_, member, [&](ValueId id) { return name_of(id) < names.size(); }, is_inside,
        [&](ValueId id) {
          key << (is_inside(id) ? inside_ : outside_)[at(id)];
          if (is_inside(id)) {
            key << graph_[id].inputs.size();
            for (const ValueId input : graph_[id].inputs) key << name_of(input);
          }
          key << is_in(group.writes, id);
          names.push_back(id);
        });
  return key.take();
}

}  // namespace tensor

#include "src/trace/graph.h"

#include <algorithm>
#include <optional>

namespace tensor {

ValueId Graph::append(Node&& node) {
  if (nodes_.size() >= 0x7fffffff) fail("graph", "more than 2^31 nodes");
  nodes_.push_back(std::move(node));
  return size() - 1;
}

ValueId Graph::add_input(TensorType type, SharedText where) {
  Node node;
  node.kind = NodeKind::input;
  node.type = type;
  node.where = std::move(where);
  inputs_.push_back(append(std::move(node)));
  return inputs_.back();
}

ValueId Graph::add_constant(const Tensor& value, SharedText where) {
  Node node;
  node.kind = NodeKind::constant;
  node.type = value.type();
  node.constant = value;
  node.where = std::move(where);
  return append(std::move(node));
}

ValueId Graph::add(Op op, ValueIds inputs, Attrs attrs, SharedText where) {
  std::vector<TensorType> types;
  for (const ValueId id : inputs) types.push_back(type(id));
  Node node;
  node.op = op;
  node.type = infer(op, types, attrs);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  node.where = std::move(where);
  return append(std::move(node));
}

ValueId Graph::add_like(const Node& node, ValueIds inputs) {
  Node like;
  like.op = node.op;
  like.type = node.type;
  like.inputs = std::move(inputs);
  like.attrs = node.attrs;
  like.where = node.where;
  return append(std::move(like));
}

void Graph::set_outputs(std::vector<ValueId> outputs) { outputs_ = std::move(outputs); }

std::vector<std::vector<ValueId>> consumers(const Graph& graph) {
  std::vector<std::vector<ValueId>> result(static_cast<std::size_t>(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id)
    for (const ValueId input : graph[id].inputs) {
      auto& list = result[at(input)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  return result;
}

std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs) {
  if (inputs.size() != graph.inputs().size())
    fail("graph", "got ", inputs.size(), " inputs, need ", graph.inputs().size());
  std::vector<Tensor> values(static_cast<std::size_t>(graph.size()));
  const auto value = [&](ValueId id) -> Tensor& { return values[at(id)]; };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = graph.inputs()[i];
    if (!(inputs[i].type() == graph.type(id)))
      fail("graph", "input ", i, " is ", inputs[i].type(), ", need ", graph.type(id));
    value(id) = inputs[i];
  }
  // A value is dropped after its last use, so that the peak is that of the eager run.
  std::vector<ValueId> last_use(values.size(), -1);
  for (ValueId id = 0; id < graph.size(); ++id)
    for (const ValueId input : graph[id].inputs) last_use[at(input)] = id;
  for (const ValueId id : graph.outputs()) last_use[at(id)] = graph.size();

  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.kind == NodeKind::constant) value(id) = node.constant;
    if (node.kind != NodeKind::operation) continue;
    std::vector<Tensor> arguments;
    for (const ValueId input : node.inputs) arguments.push_back(value(input));
    value(id) = apply_op(node.op, arguments, node.attrs);
    for (const ValueId input : node.inputs)
      if (last_use[at(input)] == id) value(input) = Tensor();
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs()) outputs.push_back(value(id));
  return outputs;
}

void verify(const Graph& graph, std::string_view stage) {
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.kind == NodeKind::constant && !(node.constant.type() == node.type))
      internal_error(stage, "constant %", id, " is ", node.constant.type(), ", its node says ",
                     node.type);
    if (node.kind != NodeKind::operation) continue;
    std::vector<TensorType> types;
    for (const ValueId input : node.inputs) {
      if (input < 0 || input >= id)
        internal_error(stage, "%", id, " reads %", input, ", which does not come before it");
      types.push_back(graph.type(input));
    }
    std::optional<TensorType> inferred;
    try {
      inferred = infer(node.op, types, node.attrs);
    } catch (const UserError& error) {
      internal_error(stage, "%", id, ": ", error.what());
    }
    if (!(*inferred == node.type))
      internal_error(stage, "%", id, " is ", node.type, ", its operator infers ", *inferred);
  }
  for (const ValueId id : graph.inputs())
    if (id < 0 || id >= graph.size() || graph[id].kind != NodeKind::input)
      internal_error(stage, "%", id, " is no input");
  for (const ValueId id : graph.outputs())
    if (id < 0 || id >= graph.size()) internal_error(stage, "output %", id, " does not exist");
}

}  // namespace tensor

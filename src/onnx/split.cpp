#include "src/onnx/split.h"

#include <algorithm>
#include <set>

#include "src/onnx/operators.h"
#include "src/onnx/runner.h"

namespace tensor::onnx {
namespace {

void count(const Graph& graph, std::map<std::string, std::int64_t>& operators) {
  for (const Node& node : graph.nodes) {
    ++operators[node.type];
    for (const Attribute& a : node.attributes)
      if (a.graph) count(*a.graph, operators);
  }
}

std::shared_ptr<Model> part_of(const Model& model) {
  auto part = std::make_shared<Model>();
  part->name = model.name, part->producer = model.producer, part->files = model.files;
  part->opset = model.opset, part->values = model.values;
  part->constants = model.constants, part->known = model.known;
  part->parameters = model.parameters;
  return part;
}

// What the nodes and the model's outputs read that none of the nodes makes.
std::set<int> read_of_others(const Graph& graph) {
  std::set<int> read(graph.outputs.begin(), graph.outputs.end());
  for (const Node& node : graph.nodes) {
    read.insert(node.inputs.begin(), node.inputs.end());
    read.insert(node.captured.begin(), node.captured.end());
  }
  for (const Node& node : graph.nodes)
    for (const int number : node.outputs) read.erase(number);
  read.erase(Node::kNone);
  return read;
}

// The nodes that are aside become the rest. `values` are what a traced call knew of them, or empty.
Parts cut(const Model& model, const std::vector<bool>& aside, const std::vector<Tensor>& values) {
  const auto head = part_of(model), rest = part_of(model);
  head->inputs = model.inputs, head->graph.inputs = model.graph.inputs;
  rest->outputs = model.outputs, rest->graph.outputs = model.graph.outputs;
  for (std::size_t i = 0; i < aside.size(); ++i)
    (aside[i] ? rest : head)->graph.nodes.push_back(model.graph.nodes[i]);

  std::set<int> between = read_of_others(rest->graph);
  for (const int number : model.constants->nodes.outputs) between.erase(number);
  for (const auto& [number, x] : model.known) between.erase(number);
  for (const int number : between) {
    const Tensor x = values.empty() ? Tensor() : values[static_cast<std::size_t>(number)];
    if (x.defined() && !is_traced(x)) {
      rest->known.emplace_back(number, x);
      continue;
    }
    OnnxValue value{model.values[static_cast<std::size_t>(number)], f32, std::nullopt};
    if (x.defined()) {
      value.dtype = x.dtype();
      value.shape.emplace();
      for (const std::int64_t extent : x.shape()) value.shape->push_back({extent, {}});
    }
    head->outputs.push_back(value), rest->inputs.push_back(value);
    head->graph.outputs.push_back(number), rest->graph.inputs.push_back(number);
  }
  for (const auto& part : {head, rest}) {
    part->graph.find_ends();
    count(part->graph, part->operators);
  }
  return {head, rest, {}};
}

}  // namespace

Parts split(const std::shared_ptr<const Model>& model, const std::vector<Tensor>& inputs) {
  Runner runner = runner_of(*model, inputs);
  const Aside aside = runner.run_traced(model->graph);
  if (aside.first.empty()) {
    const auto rest = part_of(*model);
    rest->inputs = rest->outputs = model->outputs;
    rest->graph.inputs = rest->graph.outputs = model->graph.outputs;
    Parts whole{model, rest, {}};
    for (const int number : model->graph.outputs) whole.outputs.push_back(runner.value(number));
    return whole;
  }
  Parts parts = cut(*model, aside.nodes, runner.values());
  parts.node = aside.first;
  for (const int number : parts.head->graph.outputs) parts.outputs.push_back(runner.value(number));
  return parts;
}

Parts divide(const Model& model, std::size_t node) {
  std::vector<bool> aside(model.graph.nodes.size());
  std::fill(aside.begin() + static_cast<std::ptrdiff_t>(node), aside.end(), true);
  return cut(model, aside, {});
}

std::size_t find_heavy(const Graph& graph, std::size_t from) {
  static const std::set<std::string_view> kHeavy{
      "Attention", "Conv",          "ConvInteger", "ConvTranspose", "DeformConv",
      "Einsum",    "GRU",           "Gemm",        "GridSample",    "LSTM",
      "MatMul",    "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN"};
  while (from < graph.nodes.size() && !kHeavy.contains(graph.nodes[from].type)) ++from;
  return from;
}

}  // namespace tensor::onnx

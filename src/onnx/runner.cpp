#include "src/onnx/runner.h"

#include "src/io/source.h"
#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// All on the device of one of them; 0-d tensors go along with any.
void bring_together(std::vector<Tensor>& inputs) {
  Device device;
  for (const Tensor& x : inputs)
    if (x.defined() && x.device().is_cuda()) device = x.device();
  if (!device.is_cuda()) return;
  for (Tensor& x : inputs)
    if (x.defined() && x.rank() > 0) x = x.to(device);
}

}  // namespace

std::string describe(const Node& node) {
  return "node " + in_quotes(node.name) + " (" + node.type + " of opset " +
         std::to_string(node.opset) + ")";
}

void Runner::run(const Node& node) {
  std::vector<Tensor> inputs;
  for (const int number : node.inputs)
    inputs.push_back(number == Node::kNone ? Tensor() : value(number));
  bring_together(inputs);
  Results results;
  try {
    results = node.op->run(Call(node, std::move(inputs), *this));
  } catch (const UserError& error) {
    fail(model_.name, describe(node), ": ", error.what());
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == Node::kNone) continue;
    if (i >= results.size() || !results[i].defined())
      fail(model_.name, describe(node), ": has no output ", i);
    value(node.outputs[i]) = results[i];
  }
}

void Runner::run(const Graph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    run(graph.nodes[i]);
    if (i >= graph.ends.size()) continue;
    for (const int number : graph.ends[i]) value(number) = Tensor();
  }
}

std::vector<Tensor> Runner::run_inner(const Graph& graph, std::span<const Tensor> inputs) {
  if (inputs.size() != graph.inputs.size())
    fail("graph", "takes ", graph.inputs.size(), " inputs, got ", inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) value(graph.inputs[i]) = inputs[i];
  run(graph);
  std::vector<Tensor> outputs;
  for (const int number : graph.outputs) outputs.push_back(value(number));
  return outputs;
}

const std::vector<Tensor>& Model::constants(const Device& device) const {
  const std::lock_guard lock(mutex_);
  auto& host = constants_["cpu"];
  if (host.empty()) {
    std::vector<Tensor> values(static_cast<std::size_t>(value_count));
    for (const auto& [number, x] : initializers) values[static_cast<std::size_t>(number)] = x;
    Runner runner(*this, values);
    runner.run(constant_nodes);
    std::vector<Tensor> kept(static_cast<std::size_t>(value_count));
    for (const int number : constant_nodes.outputs)
      kept[static_cast<std::size_t>(number)] = runner.value(number);
    host = std::move(kept);
  }
  if (!device.is_cuda()) return host;
  TextWriter name;
  name << device;
  auto [there, is_new] = constants_.try_emplace(name.str());
  if (is_new)
    for (const Tensor& x : host)
      // Integers are mostly shapes and positions, which are read on the host.
      there->second.push_back(x.defined() && is_floating(x.dtype()) ? x.to(device) : x);
  return there->second;
}

std::vector<Tensor> run(const Model& model, const std::vector<Tensor>& inputs) {
  Device device;
  for (const Tensor& x : inputs)
    if (x.device().is_cuda()) device = x.device();
  Runner runner(model, model.constants(device));
  for (std::size_t i = 0; i < inputs.size(); ++i) runner.value(model.graph.inputs[i]) = inputs[i];
  runner.run(model.graph);
  std::vector<Tensor> outputs;
  for (const int number : model.graph.outputs) outputs.push_back(runner.value(number));
  return outputs;
}

}  // namespace tensor::onnx

#include "src/onnx/runner.h"

#include <algorithm>
#include <map>

#include "src/core/needs_values.h"
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
  } catch (const detail::NeedsValues& error) {
    throw detail::NeedsValues(name_ + ": " + describe(node) + ": " + error.what());
  } catch (const UserError& error) {
    fail(name_, describe(node), ": ", error.what());
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == Node::kNone) continue;
    if (i >= results.size() || !results[i].defined())
      fail(name_, describe(node), ": has no output ", i);
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

Aside Runner::run_traced(const Graph& graph) {
  Aside aside{std::vector<bool>(graph.nodes.size()), {}};
  std::vector<bool> waits(values_.size());
  const auto is_awaited = [&](int number) {
    return number != Node::kNone && waits[static_cast<std::size_t>(number)];
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    bool is_aside = std::ranges::any_of(node.inputs, is_awaited) ||
                    std::ranges::any_of(node.captured, is_awaited);
    try {
      if (!is_aside) run(node);
    } catch (const detail::NeedsValues&) {
      is_aside = true;
      if (aside.first.empty()) aside.first = describe(node);
    }
    aside.nodes[i] = is_aside;
    for (const int number : node.outputs)
      if (is_aside && number != Node::kNone) waits[static_cast<std::size_t>(number)] = true;
  }
  return aside;
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

void Graph::find_ends() {
  std::map<int, std::size_t> last;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const auto* list : {&nodes[i].inputs, &nodes[i].captured, &nodes[i].outputs})
      for (const int number : *list) last[number] = i;
  last.erase(Node::kNone);
  for (const int number : outputs) last.erase(number);
  ends.assign(nodes.size(), {});
  for (const auto& [number, i] : last) ends[i].push_back(number);
}

const std::vector<Tensor>& Constants::on(const Device& device) const {
  const std::lock_guard lock(mutex_);
  auto& host = made_["cpu"];
  if (host.empty()) {
    std::vector<Tensor> values(count);
    for (const auto& [number, x] : initializers) values[static_cast<std::size_t>(number)] = x;
    Runner runner(name, values);
    runner.run(nodes);
    std::vector<Tensor> kept(count);
    for (const int number : nodes.outputs)
      kept[static_cast<std::size_t>(number)] = runner.value(number);
    host = std::move(kept);
  }
  if (!device.is_cuda()) return host;
  TextWriter text;
  text << device;
  auto [there, is_new] = made_.try_emplace(text.str());
  if (is_new)
    for (const Tensor& x : host)
      // Integers are mostly shapes and positions, which are read on the host.
      there->second.push_back(x.defined() && is_floating(x.dtype()) ? x.to(device) : x);
  return there->second;
}

Runner runner_of(const Model& model, const std::vector<Tensor>& inputs) {
  Device device;
  for (const Tensor& x : inputs)
    if (x.device().is_cuda()) device = x.device();
  Runner runner(model.name, model.constants->on(device));
  for (const auto& [number, x] : model.known) runner.value(number) = x;
  for (std::size_t i = 0; i < inputs.size(); ++i) runner.value(model.graph.inputs[i]) = inputs[i];
  return runner;
}

std::vector<Tensor> run(const Model& model, const std::vector<Tensor>& inputs) {
  Runner runner = runner_of(model, inputs);
  runner.run(model.graph);
  std::vector<Tensor> outputs;
  for (const int number : model.graph.outputs) outputs.push_back(runner.value(number));
  return outputs;
}

}  // namespace tensor::onnx

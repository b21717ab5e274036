// Runner: one call of a model.
#pragma once

#include <span>
#include <vector>

#include "src/onnx/graph.h"

namespace tensor::onnx {

/// The nodes of a graph that a traced call cannot run, and a description of the first.
struct Aside {
  std::vector<bool> nodes;
  std::string first;
};

class Runner {
 public:
  /// `name` is the model's, for messages, and outlives this object.
  Runner(const std::string& name, std::vector<Tensor> values)
      : name_(name), values_(std::move(values)) {}

  /// The nodes in their order; values that nobody needs any more are let go.
  void run(const Graph& graph);
  /// The same of traced values, all of which are kept: nodes that ask for the elements of such are
  /// set aside with all that depends on them.
  Aside run_traced(const Graph& graph);
  /// A branch or the body of a loop, on these inputs.
  std::vector<Tensor> run_inner(const Graph& graph, std::span<const Tensor> inputs);

  const std::vector<Tensor>& values() const { return values_; }
  Tensor& value(int number) { return values_[static_cast<std::size_t>(number)]; }

 private:
  void run(const Node& node);
  const std::string& name_;
  std::vector<Tensor> values_;
};

/// One on the model's constants and inputs.
Runner runner_of(const Model& model, const std::vector<Tensor>& inputs);

}  // namespace tensor::onnx

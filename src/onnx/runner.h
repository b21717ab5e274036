// Runner: one call of a model.
#pragma once

#include <span>
#include <vector>

#include "src/onnx/graph.h"

namespace tensor::onnx {

class Runner {
 public:
  Runner(const Model& model, std::vector<Tensor> values)
      : model_(model), values_(std::move(values)) {}

  /// The nodes in their order; values that nobody needs any more are let go.
  void run(const Graph& graph);
  /// A branch or the body of a loop, on these inputs.
  std::vector<Tensor> run_inner(const Graph& graph, std::span<const Tensor> inputs);

  Tensor& value(int number) { return values_[static_cast<std::size_t>(number)]; }

 private:
  void run(const Node& node);
  const Model& model_;
  std::vector<Tensor> values_;
};

}  // namespace tensor::onnx

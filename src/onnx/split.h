// Parts of a model: models that have its constants, and run one after the other.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/onnx/graph.h"

namespace tensor::onnx {

struct Parts {
  std::shared_ptr<const Model> head, rest;  // run(rest, run(head, inputs)) is run(model, inputs)
  std::string node;                         // the first that asked for elements
  std::vector<Tensor> outputs = {};         // of the head, in a traced call
};

/// For traced inputs: the head is all that can be recorded. What is known of their types alone is a
/// part of the rest. The head is the model itself, and no node is named, where that is all.
Parts split(const std::shared_ptr<const Model>& model, const std::vector<Tensor>& inputs);
/// The head has the nodes before this one. Types of values between the parts are not told.
Parts divide(const Model& model, std::size_t node);

/// Where, from this node on, the first is that a compiled function runs much faster: a product, a
/// convolution, or what samples images. As many as there are nodes if none is.
std::size_t find_heavy(const Graph& graph, std::size_t from);

/// Inputs that are given by name, as the model has them. UserError unless these are its names.
std::vector<Tensor> in_order(const Model& model, const std::map<std::string, Tensor>& inputs);
/// UserError on inputs of another number, type, rank or (where it is fixed) extent.
void check_inputs(const Model& model, const std::vector<TensorType>& inputs);

}  // namespace tensor::onnx

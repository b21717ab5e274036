// Graph: a model's nodes, ready to run. The values of a model, those of its branches and loops
// among them, have numbers: places in one list.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/onnx/messages.h"
#include "tensor/onnx.h"

namespace tensor::onnx {

struct Graph;
struct Operator;

struct Attribute {
  std::string name;
  AttributeType type = kInt;
  std::int64_t integer = 0;
  float number = 0;
  std::string text;
  Tensor tensor;
  std::shared_ptr<const Graph> graph;
  Ints integers;
  std::vector<float> numbers;
  std::vector<std::string> texts;
};

struct Node {
  static constexpr int kNone = -1;  // in place of a value: an input or output that is left out

  std::string name, type;
  std::int64_t opset = 0;
  const Operator* op = nullptr;
  std::vector<int> inputs, outputs;
  std::vector<Attribute> attributes;
  std::vector<int> captured;  // what its graphs read of the values around them

  const Attribute* find(std::string_view attribute) const {
    for (const Attribute& a : attributes)
      if (a.name == attribute) return &a;
    return nullptr;
  }
};

/// `node "/layer1/conv" (Conv of opset 13)`, for messages.
std::string describe(const Node& node);

struct Graph {
  std::vector<int> inputs, outputs;
  std::vector<Node> nodes;
  std::vector<std::vector<int>> ends;  // by node: values that no later one reads

  void find_ends();
};

/// What a model and its parts know before any call.
struct Constants {
  std::string name;       // the model's
  std::size_t count = 0;  // of all values of the model
  std::vector<std::pair<int, Tensor>> initializers;
  Graph nodes;  // depend on constants alone; outputs: what is read of them and of initializers

  /// By number, for a call on tensors of `device`, made at the first one.
  const std::vector<Tensor>& on(const Device& device) const;

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<Tensor>> made_;  // by device
};

/// What one model has in every call.
struct Model {
  std::string name, producer;  // the file's, and who wrote it
  std::vector<std::string> files;
  std::int64_t opset = 0;
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::string> values;  // the names of all values, by number
  std::shared_ptr<const Constants> constants;
  std::vector<std::pair<int, Tensor>> known;  // of a part: what the inputs' types tell
  Graph graph;                                // all nodes but those of constants
  std::vector<std::pair<std::string, Tensor>> parameters;
  std::map<std::string, std::int64_t> operators;
};

/// A model of its messages. UserError on values that nobody makes, and on all that cannot run.
std::shared_ptr<const Model> link(const ModelMessage& message, const std::string& name,
                                  class ElementReader& elements);

/// The outputs of the model; the inputs are of the types that it wants.
std::vector<Tensor> run(const Model& model, const std::vector<Tensor>& inputs);

}  // namespace tensor::onnx

// The messages of an ONNX file (https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), as much of
// them as running a model takes. Bytes are views of the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/io/bytes.h"
#include "tensor/attrs.h"

namespace tensor::onnx {

struct TensorMessage {
  std::string name;
  Ints dims;
  std::int64_t type = 0;
  std::optional<Bytes> raw;
  // The elements, one field a kind of types, where they are not raw.
  std::vector<float> floats;
  std::vector<double> doubles;
  Ints int32s, int64s;
  bool is_foreign = false;  // has elements that no tensor of this library can hold
  bool is_external = false;
  std::vector<std::pair<std::string, std::string>> external;
};

struct DimensionMessage {
  std::optional<std::int64_t> extent;
  std::string name;
};

struct ValueMessage {
  std::string name;
  std::int64_t type = 0;
  std::string kind = "of no type";  // or "tensor"; for messages, what else it is
  std::optional<std::vector<DimensionMessage>> shape;
};

struct GraphMessage;

struct AttributeMessage {
  std::string name;
  std::int64_t type = 0;  // AttributeType below, or what this library does not read
  std::int64_t integer = 0;
  float number = 0;
  std::string text;
  std::shared_ptr<TensorMessage> tensor;
  std::shared_ptr<GraphMessage> graph;
  Ints integers;
  std::vector<float> numbers;
  std::vector<std::string> texts;
};

/// AttributeProto.AttributeType.
enum AttributeType : std::int64_t {
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8
};

struct NodeMessage {
  std::string name, type, domain;
  std::vector<std::string> inputs, outputs;
  std::vector<AttributeMessage> attributes;
};

struct GraphMessage {
  std::string name;
  std::vector<NodeMessage> nodes;
  std::vector<TensorMessage> initializers;
  std::vector<ValueMessage> inputs, outputs;
  bool has_sparse = false;
};

struct ModelMessage {
  std::int64_t ir_version = 0;
  std::string producer, producer_version;
  std::vector<std::pair<std::string, std::int64_t>> opsets;  // domain and version
  GraphMessage graph;
  bool is_training = false, has_functions = false;
};

/// UserError, naming the file `name`, on what is no such message, or needs more memory or stack
/// than any model.
ModelMessage read_model(Bytes bytes, const std::string& name);
/// A TensorProto alone, as ONNX's test data are.
TensorMessage read_tensor(Bytes bytes, const std::string& name);

}  // namespace tensor::onnx

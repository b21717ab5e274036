#include "src/onnx/messages.h"

#include "src/onnx/wire.h"

namespace tensor::onnx {
namespace {

std::pair<std::string, std::string> entry_of(WireReader in) {
  std::pair<std::string, std::string> entry;
  while (in.next()) {
    if (in.field() == 1) entry.first = in.text();
    if (in.field() == 2) entry.second = in.text();
  }
  return entry;
}

TensorMessage tensor_of(WireReader in) {
  TensorMessage tensor;
  while (in.next()) switch (in.field()) {
      case 1:
        in.integers(tensor.dims);
        break;
      case 2:
        tensor.type = in.integer();
        break;
      case 4:
        in.numbers(tensor.floats);
        break;
      case 5:
        in.integers(tensor.int32s);
        break;
      case 7:
        in.integers(tensor.int64s);
        break;
      case 8:
        tensor.name = in.text();
        break;
      case 9:
        tensor.raw = in.bytes();
        break;
      case 10:
        in.numbers(tensor.doubles);
        break;
      case 3:   // segments
      case 6:   // texts
      case 11:  // unsigned numbers of 64 bits
        tensor.is_foreign = true;
        break;
      case 13:
        tensor.external.push_back(entry_of(in.message("StringStringEntryProto")));
        break;
      case 14:
        tensor.is_external = in.integer() != 0;
        break;
      default:
        break;
    }
  return tensor;
}

DimensionMessage dimension_of(WireReader in) {
  DimensionMessage dimension;
  while (in.next()) {
    if (in.field() == 1) dimension.extent = in.integer();
    if (in.field() == 2) dimension.name = in.text();
  }
  return dimension;
}

void read_tensor_type(WireReader in, ValueMessage& value) {
  value.kind = "tensor";
  while (in.next()) {
    if (in.field() == 1) value.type = in.integer();
    if (in.field() != 2) continue;
    value.shape.emplace();
    for (WireReader shape = in.message("TensorShapeProto"); shape.next();)
      if (shape.field() == 1)
        value.shape->push_back(dimension_of(shape.message("TensorShapeProto.Dimension")));
  }
}

void read_type(WireReader in, ValueMessage& value) {
  while (in.next()) switch (in.field()) {
      case 1:
        read_tensor_type(in.message("TypeProto.Tensor"), value);
        break;
      case 4:
        value.kind = "a sequence";
        break;
      case 5:
        value.kind = "a map";
        break;
      case 8:
        value.kind = "a sparse tensor";
        break;
      case 9:
        value.kind = "optional";
        break;
      default:
        break;
    }
}

ValueMessage value_of(WireReader in) {
  ValueMessage value;
  while (in.next()) {
    if (in.field() == 1) value.name = in.text();
    if (in.field() == 2) read_type(in.message("TypeProto"), value);
  }
  return value;
}

GraphMessage graph_of(WireReader in);

AttributeMessage attribute_of(WireReader in) {
  AttributeMessage attribute;
  while (in.next()) switch (in.field()) {
      case 1:
        attribute.name = in.text();
        break;
      case 2:
        attribute.number = in.number();
        break;
      case 3:
        attribute.integer = in.integer();
        break;
      case 4:
        attribute.text = in.text();
        break;
      case 5:
        attribute.tensor = std::make_shared<TensorMessage>(tensor_of(in.message("TensorProto")));
        break;
      case 6:
        attribute.graph = std::make_shared<GraphMessage>(graph_of(in.message("GraphProto")));
        break;
      case 7:
        in.numbers(attribute.numbers);
        break;
      case 8:
        in.integers(attribute.integers);
        break;
      case 9:
        attribute.texts.push_back(in.text());
        break;
      case 20:
        attribute.type = in.integer();
        break;
      default:
        break;
    }
  return attribute;
}

NodeMessage node_of(WireReader in) {
  NodeMessage node;
  while (in.next()) switch (in.field()) {
      case 1:
        node.inputs.push_back(in.text());
        break;
      case 2:
        node.outputs.push_back(in.text());
        break;
      case 3:
        node.name = in.text();
        break;
      case 4:
        node.type = in.text();
        break;
      case 5:
        node.attributes.push_back(attribute_of(in.message("AttributeProto")));
        break;
      case 7:
        node.domain = in.text();
        break;
      default:
        break;
    }
  return node;
}

GraphMessage graph_of(WireReader in) {
  GraphMessage graph;
  while (in.next()) switch (in.field()) {
      case 1:
        graph.nodes.push_back(node_of(in.message("NodeProto")));
        break;
      case 2:
        graph.name = in.text();
        break;
      case 5:
        graph.initializers.push_back(tensor_of(in.message("TensorProto")));
        break;
      case 11:
        graph.inputs.push_back(value_of(in.message("ValueInfoProto")));
        break;
      case 12:
        graph.outputs.push_back(value_of(in.message("ValueInfoProto")));
        break;
      case 15:
        graph.has_sparse = true;
        break;
      default:
        break;
    }
  return graph;
}

std::pair<std::string, std::int64_t> opset_of(WireReader in) {
  std::pair<std::string, std::int64_t> opset;
  while (in.next()) {
    if (in.field() == 1) opset.first = in.text();
    if (in.field() == 2) opset.second = in.integer();
  }
  return opset;
}

}  // namespace

ModelMessage read_model(Bytes bytes, const std::string& name) {
  WireLimits limits{name};
  WireReader in(bytes, limits);
  ModelMessage model;
  bool has_graph = false;
  while (in.next()) switch (in.field()) {
      case 1:
        model.ir_version = in.integer();
        break;
      case 2:
        model.producer = in.text();
        break;
      case 3:
        model.producer_version = in.text();
        break;
      case 7:
        if (has_graph) in.refuse("a second graph");
        has_graph = true;
        model.graph = graph_of(in.message("GraphProto"));
        break;
      case 8:
        model.opsets.push_back(opset_of(in.message("OperatorSetIdProto")));
        break;
      case 20:
        model.is_training = true;
        break;
      case 25:
        model.has_functions = true;
        break;
      default:
        break;
    }
  if (!has_graph) fail(name, "is no ONNX model: it has no graph");
  return model;
}

TensorMessage read_tensor(Bytes bytes, const std::string& name) {
  WireLimits limits{name};
  WireReader in(bytes, limits);
  return tensor_of(in);
}

}  // namespace tensor::onnx

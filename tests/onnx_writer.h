// Writes ONNX models by hand: the bytes of messages, field by field.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/onnx/messages.h"
#include "tensor/onnx.h"
#include "tensor/tensor.h"

namespace tensor::by_hand {

/// A message of Protocol Buffers in the making.
class Message {
 public:
  Message& integer(int field, std::int64_t value) { return tag(field, 0).varint(value); }
  Message& number(int field, float value) {
    tag(field, 5);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& text(int field, const std::string& value) {
    tag(field, 2).varint(static_cast<std::int64_t>(value.size()));
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.text_); }
  Message& varint(std::int64_t value) {
    auto rest = static_cast<std::uint64_t>(value);
    for (; rest > 0x7f; rest >>= 7) text_ += static_cast<char>((rest & 0x7f) | 0x80);
    text_ += static_cast<char>(rest);
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  Message& tag(int field, int wire) { return varint(field << 3 | wire); }
  std::string text_;
};

/// TensorProto.DataType.
inline std::int64_t onnx_type(DType dtype) {
  constexpr std::int64_t kTypes[] = {9, 2, 3, 5, 6, 7, 10, 16, 1, 11};
  return kTypes[static_cast<int>(dtype)];
}

/// A TensorProto without elements.
inline Message tensor_head(const std::string& name, const Shape& shape, std::int64_t type) {
  Message m;
  for (const std::int64_t extent : shape) m.integer(1, extent);
  return m.integer(2, type).text(8, name);
}
/// One with raw elements.
template <class T>
Message tensor(const std::string& name, const std::vector<T>& elements, const Shape& shape) {
  const auto* first = reinterpret_cast<const char*>(elements.data());
  return tensor_head(name, shape, onnx_type(dtype_of<T>()))
      .text(9, std::string(first, elements.size() * sizeof(T)));
}

/// A ValueInfoProto: extents as numbers, or as names in quotes.
inline Message value(const std::string& name, std::int64_t type,
                     const std::vector<std::string>& shape) {
  Message extents;
  for (const std::string& extent : shape) {
    const bool is_number = !extent.empty() && is_digit(extent[0]);
    extents.message(
        1, is_number ? Message().integer(1, std::stoll(extent)) : Message().text(2, extent));
  }
  const Message tensor_type = Message().integer(1, type).message(2, extents);
  return Message().text(1, name).message(2, Message().message(1, tensor_type));
}

// AttributeProtos.
inline Message attribute(const std::string& name, int value) {
  return Message().text(1, name).integer(3, value).integer(20, onnx::kInt);
}
inline Message attribute(const std::string& name, float value) {
  return Message().text(1, name).number(2, value).integer(20, onnx::kFloat);
}
inline Message attribute(const std::string& name, const std::string& value) {
  return Message().text(1, name).text(4, value).integer(20, onnx::kString);
}
inline Message attribute(const std::string& name, const Ints& values) {
  Message m = Message().text(1, name);
  for (const std::int64_t value : values) m.integer(8, value);
  return m.integer(20, onnx::kInts);
}
inline Message tensor_attribute(const std::string& name, const Message& tensor) {
  return Message().text(1, name).message(5, tensor).integer(20, onnx::kTensor);
}
inline Message graph_attribute(const std::string& name, const Message& graph) {
  return Message().text(1, name).message(6, graph).integer(20, onnx::kGraph);
}

/// A NodeProto, called as its first output with "make " before it.
inline Message node(const std::string& type, const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs,
                    const std::vector<Message>& attributes = {}) {
  Message m;
  for (const std::string& input : inputs) m.text(1, input);
  for (const std::string& output : outputs) m.text(2, output);
  m.text(3, "make " + outputs[0]).text(4, type);
  for (const Message& a : attributes) m.message(5, a);
  return m;
}

/// A GraphProto.
inline Message graph(const std::vector<Message>& nodes, const std::vector<Message>& inputs,
                     const std::vector<Message>& outputs,
                     const std::vector<Message>& initializers = {}) {
  Message m;
  for (const Message& n : nodes) m.message(1, n);
  for (const Message& i : initializers) m.message(5, i);
  for (const Message& i : inputs) m.message(11, i);
  for (const Message& o : outputs) m.message(12, o);
  return m;
}

/// A ModelProto.
inline Message model(const Message& graph, std::int64_t opset = 17) {
  return Message()
      .integer(1, 8)
      .text(2, "by hand")
      .message(7, graph)
      .message(8, Message().text(1, "").integer(2, opset));
}

inline OnnxModel parsed(const Message& model) {
  return parse_onnx(std::as_bytes(std::span(model.str())), "m");
}

/// An operator alone: its inputs are a, b, c ..., its output y; types and shapes are any.
inline OnnxModel operator_alone(const std::string& type, const std::vector<Tensor>& inputs,
                                DType output, const std::vector<Message>& attributes = {},
                                std::int64_t opset = 17) {
  std::vector<std::string> names;
  std::vector<Message> values;
  for (const Tensor& x : inputs) {
    names.push_back(x.defined() ? std::string(1, static_cast<char>('a' + names.size())) : "");
    if (x.defined())
      values.push_back(value(names.back(), onnx_type(x.dtype()),
                             std::vector<std::string>(static_cast<std::size_t>(x.rank()), "n")));
  }
  Message any = Message().text(1, "y").message(
      2, Message().message(1, Message().integer(1, onnx_type(output))));
  return parsed(model(graph({node(type, names, {"y"}, attributes)}, values, {any}), opset));
}

}  // namespace tensor::by_hand

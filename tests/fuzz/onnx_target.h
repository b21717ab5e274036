// The target of ONNX files: a model is refused, or read and, where nothing in it is large, run.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/onnx/elements.h"
#include "src/onnx/messages.h"
#include "tensor/onnx.h"
#include "tests/fuzz/targets.h"

namespace tensor::fuzzing {

/// Up to which numbers and counts a model is run: what it makes grows by their powers.
inline constexpr std::int64_t kModest = 8;

inline bool is_modest(const Ints& list) {
  return std::ranges::all_of(list, [](auto n) { return n >= -kModest && n <= kModest; });
}

/// Whether the elements may be used as extents, counts and scales.
inline bool is_modest(const onnx::TensorMessage& message) {
  const Tensor x = onnx::ElementReader("f").read(message);
  if (x.size() > 1 << 10) return false;
  return std::ranges::all_of(x.to_vector<double>(),
                             [](double n) { return std::abs(n) <= double{kModest}; });
}

inline bool is_modest(const onnx::GraphMessage& graph) {
  const auto attribute = [](const onnx::AttributeMessage& a) {
    return is_modest(a.integers) && is_modest(Ints{a.integer}) &&
           std::ranges::all_of(a.numbers, [](float n) { return std::abs(n) <= float{kModest}; }) &&
           (!a.tensor || is_modest(*a.tensor)) && (!a.graph || is_modest(*a.graph));
  };
  const auto node = [&](const onnx::NodeMessage& n) {
    return n.type != "Loop" && n.inputs.size() <= kModest &&
           std::ranges::all_of(n.attributes, attribute);
  };
  return graph.nodes.size() <= 3 && std::ranges::all_of(graph.nodes, node) &&
         std::ranges::all_of(graph.initializers,
                             [](const auto& tensor) { return is_modest(tensor); });
}

/// An input that the model takes; extents that may be any are 2.
inline Tensor input_of(const OnnxValue& value) {
  TensorType type{{}, value.dtype};
  if (value.shape)
    for (const OnnxExtent& axis : *value.shape)
      type.shape.push_back(axis.extent < 0 ? 2 : axis.extent);
  if (static_cast<double>(num_elements(type.shape)) > 1 << 10) fail("f", "is too large");
  return counted(type);
}

inline void onnx_model(Bytes bytes) {
  allow_user_errors([&] {
    const OnnxModel model = parse_onnx(bytes, "f");
    for (const auto& [name, x] : model.parameters()) touch(x);
    const bool is_small = is_modest(onnx::read_model(bytes, "f").graph);
    if (!is_small) return;
    std::vector<Tensor> inputs;
    for (const OnnxValue& value : model.inputs()) inputs.push_back(input_of(value));
    for (const Tensor& x : model(inputs)) touch(x);
  });
}

}  // namespace tensor::fuzzing

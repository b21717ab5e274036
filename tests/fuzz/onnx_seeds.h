// Small ONNX models, an operator or two each, whose shapes and positions are constants, so that
// what is changed reaches the operators.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/onnx_writer.h"

namespace tensor::fuzzing {

/// A model of one operator: x [2, 3, 4, 5] and constants are its inputs.
inline std::string onnx_seed(const std::string& type,
                             const std::vector<by_hand::Message>& constants,
                             const std::vector<by_hand::Message>& attributes = {},
                             std::int64_t input_type = 1,
                             const std::vector<std::string>& shape = {"2", "3", "4", "5"}) {
  using namespace by_hand;
  std::vector<std::string> inputs{"x"};
  std::vector<Message> initializers;
  for (std::size_t i = 0; i < constants.size(); ++i) {
    inputs.push_back(std::string(1, static_cast<char>('a' + i)));
    initializers.push_back(Message(constants[i]).text(8, inputs.back()));
  }
  const Message any =
      Message().text(1, "y").message(2, Message().message(1, Message().integer(1, 1)));
  return model(graph({node(type, inputs, {"y"}, attributes)}, {value("x", input_type, shape)},
                     {any}, initializers),
               18)
      .str();
}

inline std::vector<std::string> onnx_seeds() {
  using namespace by_hand;
  const auto whole = [](const Ints& list) {
    return tensor<std::int64_t>("", list, {static_cast<std::int64_t>(list.size())});
  };
  const auto number = [](std::int64_t n) { return tensor<std::int64_t>("", {n}, {}); };
  const auto real = [](const std::vector<float>& list, const Shape& shape) {
    return tensor<float>("", list, shape);
  };
  const auto counted = [&](const Shape& shape) {
    std::vector<float> list;
    for (std::int64_t i = 0; i < num_elements(shape); ++i)
      list.push_back(static_cast<float>(i % 5));
    return real(list, shape);
  };
  const Message pads = attribute("pads", Ints{1, 0, 1, 1}), twos = attribute("strides", Ints{2, 2});
  const Message kernel = attribute("kernel_shape", Ints{3, 2});
  const Message then = graph({node("Relu", {"x"}, {"r"})}, {}, {value("r", 1, {})});
  return {
      onnx_seed("Conv", {counted({4, 3, 3, 2}), counted({4})}, {pads, twos}),
      onnx_seed("ConvTranspose", {counted({3, 2, 3, 2})}, {pads, twos}),
      onnx_seed("MaxPool", {}, {kernel, pads, twos, attribute("ceil_mode", 1)}),
      onnx_seed("MaxPool", {}, {kernel, attribute("dilations", Ints{1, 2})}),
      onnx_seed("AveragePool", {}, {kernel, pads, attribute("auto_pad", "SAME_UPPER")}),
      onnx_seed("Reshape", {whole({0, -1, 5})}),
      onnx_seed("Slice", {whole({1, -1}), whole({3, -4}), whole({1, 3}), whole({1, -2})}),
      onnx_seed("Split", {whole({2, 2})}, {attribute("axis", 2)}),
      onnx_seed("Pad", {whole({0, 0, 1, -1, 0, 0, 2, 1})}, {attribute("mode", "reflect")}),
      onnx_seed("Pad", {whole({0, 0, 1, -1, 0, 0, 2, 1}), real({7}, {})}),
      onnx_seed("Gather", {whole({1, -1})}, {attribute("axis", 3)}),
      onnx_seed("GatherElements", {tensor<std::int64_t>("", {1, 0, 2, 1}, {1, 1, 2, 2})},
                {attribute("axis", 1)}),
      onnx_seed("GatherND", {tensor<std::int64_t>("", {1, 2, 0, 1}, {2, 2})},
                {attribute("batch_dims", 0)}),
      onnx_seed("ScatterND", {tensor<std::int64_t>("", {1, 2, 3}, {1, 3}), counted({1, 5})}),
      onnx_seed("ScatterElements",
                {tensor<std::int64_t>("", {1}, {1, 1, 1, 1}), counted({1, 1, 1, 1})}),
      onnx_seed("Expand", {whole({2, 1, 3, 1, 5})}, {}, 1, {"3", "4", "1"}),
      onnx_seed("Tile", {whole({1, 2, 1, 3})}),
      onnx_seed("Transpose", {}, {attribute("perm", Ints{0, 2, 3, 1})}),
      onnx_seed("Unsqueeze", {whole({0, -1})}),
      onnx_seed("ReduceSum", {whole({1, -1})}, {attribute("keepdims", 0)}),
      onnx_seed("TopK", {whole({2})}, {attribute("axis", 2), attribute("largest", 0)}),
      onnx_seed("ArgMax", {}, {attribute("axis", -1), attribute("select_last_index", 1)}),
      onnx_seed("CumSum", {number(2)}, {attribute("exclusive", 1), attribute("reverse", 1)}),
      onnx_seed("OneHot", {number(4), real({0, 1}, {2})}, {attribute("axis", 1)}),
      onnx_seed("Resize", {real({}, {0}), real({1, 1, 2, 0.5F}, {4})},
                {attribute("mode", "linear")}),
      onnx_seed("Resize", {real({}, {0}), real({}, {0}), whole({2, 3, 5, 3})},
                {attribute("mode", "cubic"), attribute("antialias", 1)}),
      onnx_seed("LayerNormalization", {counted({4, 5}), counted({4, 5})}, {attribute("axis", 2)}),
      onnx_seed("BatchNormalization", {counted({3}), counted({3}), counted({3}), counted({3})}),
      onnx_seed("LRN", {}, {attribute("size", 3)}),
      onnx_seed("QuantizeLinear", {real({1, 2, 3}, {3}), tensor<std::int8_t>("", {1, 2, 3}, {3})}),
      onnx_seed("Einsum", {counted({5, 2})}, {attribute("equation", "...i,ij->...j")}),
      onnx_seed("Gemm", {counted({4, 3}), counted({4})},
                {attribute("transB", 1), attribute("alpha", 0.5F)}, 1, {"2", "3"}),
      onnx_seed("DepthToSpace", {}, {attribute("blocksize", 2)}, 1, {"1", "4", "2", "3"}),
      onnx_seed("NonMaxSuppression", {counted({1, 2, 3}), whole({2}), real({0.5F}, {1})}, {}, 1,
                {"1", "3", "4"}),
      onnx_seed("ConstantOfShape", {}, {tensor_attribute("value", whole({1}))}, 7, {"2"}),
      onnx_seed("Range", {number(7), number(2)}, {}, 7, {}),
      model(graph({node("Constant", {}, {"c"},
                        {tensor_attribute("value", tensor_head("", {}, 9).integer(5, 1))}),
                   node("If", {"c"}, {"y"},
                        {graph_attribute("then_branch", then),
                         graph_attribute("else_branch", then)})},
                  {value("x", 1, {"2", "n"})}, {value("y", 1, {"2", "n"})}))
          .str(),
  };
}

}  // namespace tensor::fuzzing

// ONNX models as functions: what they say of themselves, how they run and compile, what they
// refuse.
#include "src/runtime/program.h"
#include "tests/fuzz/onnx_seeds.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"
#include "tests/onnx_writer.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

// y = relu(x w + b), x [batch, 2]
Message layer() {
  return model(graph(
      {node("Gemm", {"x", "w", "b"}, {"h"}), node("Relu", {"h"}, {"y"})},
      {value("x", 1, {"batch", "2"})}, {value("y", 1, {"batch", "3"})},
      {tensor<float>("w", {1, 2, 3, 4, 5, 6}, {2, 3}), tensor<float>("b", {0, -100, 1}, {3})}));
}
Message model_of_rounded(const std::vector<std::int8_t>& bytes, const std::vector<float>& scales) {
  return model(
      graph({node("QuantizeLinear", {"x", "s", "z"}, {"q"}),
             node("DequantizeLinear", {"q", "s", "z"}, {"r"}),
             node("DequantizeLinear", {"b", "sw"}, {"w"}, {attribute("axis", 1)}),
             node("MatMul", {"r", "w"}, {"y"})},
            {value("x", 1, {"batch", "20"})}, {value("y", 1, {"batch", "16"})},
            {tensor<float>("s", {0.02F}, {}), tensor<std::uint8_t>("z", {121}, {}),
             tensor<std::int8_t>("b", bytes, {20, 16}), tensor<float>("sw", scales, {16})}));
}
const Tensor kTwo = array({1.0F, -1.0F, 2.0F, 0.5F}, {2, 2});
const Tensor kThree = array({0.0F, 0.0F, 0.0F, 4.0F, 0.0F, 10.0F}, {2, 3});

TEST(Onnx, RunsAndCompilesLikeAnyFunction) {
  const OnnxModel model = parsed(layer());
  EXPECT_TRUE(array_equal(model({kTwo})[0], kThree));
  EXPECT_TRUE(array_equal(model.run({{"x", kTwo}}).at("y"), kThree));
  const Compiled fast = compile(model, {.threads = 1});
  EXPECT_TRUE(array_equal(fast({kTwo})[0], kThree));
  EXPECT_EQ(fast({zeros({5, 2})})[0].shape(), Shape({5, 3}));  // any batch
}

// x rounded to u8 around a zero, by weights of i8 with a scale a column, as quantizers write it.
TEST(Onnx, RoundedTensorsAreMultipliedInEightBits) {
  std::vector<std::int8_t> bytes;
  std::vector<float> scales;
  for (int i = 0; i < 20 * 16; ++i) bytes.push_back(static_cast<std::int8_t>(i * 37 % 255 - 127));
  for (int n = 0; n < 16; ++n) {
    scales.push_back(0.01F + 0.001F * static_cast<float>(n));
    bytes[static_cast<std::size_t>(n)] = 127;
  }
  const OnnxModel model = parsed(model_of_rounded(bytes, scales));
  const Tensor x = Generator(1).normal({7, 20});
  const Tensor want = model({x})[0];
  const Compiled fast = compile(model, {.dtype = i8});
  const Tensor got = fast({x})[0];
  // Sums of 20 products of integers up to 255 and 127, with another scale behind them.
  EXPECT_LE(max(abs(got - want)).item(), max(abs(want)).item() * 64 * 0x1p-24);
  const Graph& graph = fast.executable({x}).program().laid.graph;
  int count = 0;
  for (const Node& node : graph.nodes())
    count += node.op == Op::quantized_matmul && graph.type(node.inputs[0]).dtype == i8;
  EXPECT_EQ(count, 1);
}

TEST(Onnx, SaysWhatItIs) {
  const OnnxModel model = parsed(layer());
  TextWriter text;
  text << model.inputs()[0] << "; " << model.outputs()[0];
  EXPECT_EQ(text.str(), "x f32(batch, 2); y f32(batch, 3)");
  EXPECT_EQ(model.opset(), 17);
  EXPECT_EQ(model.producer(), "by hand");
  EXPECT_EQ(model.operators(), (std::map<std::string, std::int64_t>{{"Gemm", 1}, {"Relu", 1}}));
  ASSERT_EQ(model.parameters().size(), 2U);
  EXPECT_EQ(model.parameters()[0].first, "w");
}

TEST(Onnx, RefusesOtherInputs) {
  const OnnxModel model = parsed(layer());
  EXPECT_EQ(error_of([&] { model({}); }), "m: got 0 inputs, need 1: \"x\"");
  EXPECT_EQ(error_of([&] {
              model({zeros({1, 3})});
            }),
            "m: got f32(1, 3) as the input \"x\", need x f32(batch, 2)");
  EXPECT_EQ(error_of([&] { model({zeros({2})}); }),
            "m: got f32(2,) as the input \"x\", need x f32(batch, 2)");
  EXPECT_EQ(error_of([&] {
              model({zeros({1, 2}, f64)});
            }),
            "m: got f64(1, 2) as the input \"x\", need x f32(batch, 2)");
  EXPECT_EQ(error_of([&] { model.run({}); }), "m: the input \"x\" is missing, need \"x\"");
  EXPECT_EQ(error_of([&] {
              model.run({{"x", kTwo}, {"z", kTwo}});
            }),
            "m: there is no input \"z\", need \"x\"");
}

// [batch, 2, 3] -> [batch, 6] by Shape, Gather, Concat: as exporters write a flattening.
Message flattening() {
  return model(graph({node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"n"}),
                      node("Unsqueeze", {"n", "axes"}, {"row"}),
                      node("Concat", {"row", "rest"}, {"shape"}, {attribute("axis", 0)}),
                      node("Reshape", {"x", "shape"}, {"flat"}), node("Relu", {"flat"}, {"y"})},
                     {value("x", 1, {"batch", "2", "3"})}, {value("y", 1, {"batch", "6"})},
                     {tensor<std::int64_t>("zero", {0}, {}), tensor<std::int64_t>("axes", {0}, {1}),
                      tensor<std::int64_t>("rest", {-1}, {1})}));
}

TEST(Onnx, ArithmeticOfShapesIsNotPartOfWhatIsCompiled) {
  const OnnxModel model = parsed(flattening());
  const Executable compiled = compile(model).executable({zeros({4, 2, 3})});
  EXPECT_EQ(compiled.output_types()[0].shape, Shape({4, 6}));
  for (const Node& node : compiled.program().laid.graph.nodes())
    EXPECT_EQ(node.type.dtype, f32) << "a number of a shape";
}

TEST(Onnx, WhatDependsOnConstantsIsMadeOnce) {
  const OnnxModel model = parsed(by_hand::model(graph(
      {node("Exp", {"w"}, {"e"}), node("Add", {"x", "e"}, {"y"}), node("Neg", {"e"}, {"z"})},
      {value("x", 1, {"2"})}, {value("y", 1, {"2"}), value("z", 1, {"2"}), value("w", 1, {"2"})},
      {tensor<float>("w", {0, 1}, {2})})));
  const auto first = model({zeros({2})}), second = model({zeros({2})});
  EXPECT_TRUE(first[1].shares_storage(second[1]));
  EXPECT_TRUE(first[2].shares_storage(model.parameters()[0].second));
  EXPECT_TRUE(allclose(first[0], exp(array({0.0F, 1.0F}))));
  const auto compiled = compile(model, {.threads = 1})({zeros({2})});
  EXPECT_TRUE(array_equal(compiled[1], first[1]) && array_equal(compiled[2], first[2]));
}

// y = sum ? x + w : x - w, both within branches
Message branches(bool condition) {
  const auto branch = [](const std::string& type) {
    return graph({node(type, {"x", "w"}, {"r"})}, {}, {value("r", 1, {"2"})},
                 {tensor<float>("w", {1, 2}, {2})});
  };
  return model(graph({node("If", {"c"}, {"y"},
                           {graph_attribute("then_branch", branch("Add")),
                            graph_attribute("else_branch", branch("Sub"))})},
                     {value("x", 1, {"2"})}, {value("y", 1, {"2"})},
                     {tensor_head("c", {}, 9).text(9, std::string(1, condition ? 1 : 0))}));
}

TEST(Onnx, BranchesAreTaken) {
  for (const bool condition : {true, false}) {
    const OnnxModel model = parsed(branches(condition));
    const Tensor want = condition ? array({1.0F, 2.0F}) : array({-1.0F, -2.0F});
    EXPECT_TRUE(array_equal(model({zeros({2})})[0], want));
    EXPECT_TRUE(array_equal(compile(model, {.threads = 1})({zeros({2})})[0], want));
    EXPECT_EQ(model.operators().at("Add"), 1);
  }
}

TEST(Onnx, BranchesMayDependOnElements) {
  const auto branch = [](const std::string& type) {
    return graph({node(type, {"x", "x"}, {"r"})}, {}, {value("r", 1, {"2"})}, {});
  };
  const OnnxModel model = parsed(
      by_hand::model(graph({node("If", {"c"}, {"y"},
                                 {graph_attribute("then_branch", branch("Add")),
                                  graph_attribute("else_branch", branch("Mul"))})},
                           {value("x", 1, {"2"}), value("c", 9, {})}, {value("y", 1, {"2"})}, {})));
  const Tensor x = array({3.0F, 5.0F});
  const auto compiled = compile(model, {.threads = 1});
  for (const bool condition : {true, false}) {
    const Tensor c = full({}, condition), want = condition ? x + x : x * x;
    EXPECT_TRUE(array_equal(model({x, c})[0], want));
    EXPECT_TRUE(array_equal(compiled({x, c})[0], want));
  }
}

// Three times: s = s + x, and every s is a row of r.
Message looped(const std::string& condition) {
  const Message body = graph({node("Add", {"s", "x"}, {"t"}), node("Identity", {condition}, {"on"}),
                              node("Identity", {"t"}, {"row"})},
                             {value("i", 7, {}), value("c", 9, {}), value("s", 1, {"2"})},
                             {value("on", 9, {}), value("t", 1, {"2"}), value("row", 1, {"2"})});
  return model(graph({node("Greater", {"x", "x"}, {"f"}),
                      node("ReduceMax", {"x"}, {"top"}, {attribute("keepdims", 0)}),
                      node("Less", {"top", "top"}, {"never"}),
                      node("Loop", {"n", "", "x"}, {"y", "r"}, {graph_attribute("body", body)})},
                     {value("x", 1, {"2"})}, {value("y", 1, {"2"}), value("r", 1, {"3", "2"})},
                     {tensor<std::int64_t>("n", {3}, {1})}));
}

TEST(Onnx, LoopsAreUnrolled) {
  const OnnxModel model = parsed(looped("c"));
  const Tensor x = array({1.0F, 10.0F});
  const auto got = model({x}), compiled = compile(model, {.threads = 1})({x});
  for (const auto* result : {&got, &compiled}) {
    EXPECT_TRUE(array_equal((*result)[0], array({4.0F, 40.0F})));
    EXPECT_TRUE(array_equal((*result)[1], array({{2, 20}, {3, 30}, {4, 40}})));
  }
  const OnnxModel open = parsed(looped("never"));
  EXPECT_TRUE(array_equal(open({x})[1], array({{2, 20}})));  // eagerly
  EXPECT_EQ(error_of([&] { compile(open, {.threads = 1})({x}); }),
            "m: node \"make y\" (Loop of opset 17): condition: asks for the values of a traced "
            "tensor (bool()), which exist only when the compiled function runs: how often a loop "
            "runs must not depend on the elements of the model's inputs where it is compiled: run "
            "it eagerly");
}

TEST(Onnx, ShapesThatDependOnElementsRunEagerlyOnly) {
  const OnnxModel model = operator_alone("NonZero", {zeros({2})}, i64);
  EXPECT_TRUE(array_equal(model({array({0.0F, 2.0F})})[0], array({{1}})));
  EXPECT_EQ(error_of([&] { compile(model, {.threads = 1})({zeros({2})}); }),
            "m: node \"make y\" (NonZero of opset 17): input 0: asks for the values of a traced "
            "tensor (f32(2,)), which exist only when the compiled function runs: a shape, a "
            "condition or a list of positions must not depend on the elements of the model's "
            "inputs where it is compiled: run it eagerly");
}

// ---- What is refused

std::string refusal(const Message& model) {
  return error_of([&] { parsed(model); });
}

TEST(Onnx, NamesAllThatItCannotRunAtOnce) {
  const Message bad = graph(
      {node("Relu", {"x"}, {"a"}), node("Sorcery", {"a"}, {"b"}), node("Sorcery", {"b"}, {"c"}),
       node("Gelu", {"c"}, {"d"}), node("Relu", {"d"}, {"e"}, {attribute("colour", "red")}),
       node("Softmax", {"e"}, {"f"}, {attribute("axis", "last")}),
       node("Pad", {"f", "p"}, {"g"}, {attribute("mode", "odd")}), node("Add", {"g"}, {"y"}),
       node("Abs", {"y"}, {"z", "more"})},
      {value("x", 1, {"2"}), value("t", 8, {"2"})}, {value("y", 1, {"2"})},
      {tensor_head("p", {0}, 12)});
  EXPECT_EQ(
      refusal(model(bad)),
      "m: needs what this library does not run: Abs (opset 17) with output 1 at \"make z\"; "
      "Add (opset 17) with 1 inputs at \"make y\"; Gelu (opset 17), from opset 20 "
      "on at \"make d\"; Pad with mode=\"odd\" at \"make g\"; Relu (opset 17) with the attribute "
      "\"colour\" at \"make e\"; Softmax (opset 17) with the attribute \"axis\" of another type at "
      "\"make f\"; Sorcery (opset 17) at \"make b\", \"make c\"; a tensor of the type UINT32 at "
      "\"p\"; an input of the type STRING at \"t\" (docs/onnx.md lists what it does): export the "
      "model otherwise");
}

TEST(Onnx, NamesOtherOpsetsAndKindsOfModels) {
  const std::string end = " (docs/onnx.md lists what it does): export the model otherwise";
  const Message one = graph({node("Relu", {"x"}, {"y"})}, {value("x", 1, {})}, {value("y", 1, {})});
  EXPECT_EQ(refusal(model(one, 99)),
            "m: needs what this library does not run: opset 99 (1 to 26 are known)" + end);
  EXPECT_EQ(refusal(model(one).message(20, Message()).message(25, Message())),
            "m: needs what this library does not run: functions of its own; training" + end);
  Message other = node("Relu", {"x"}, {"y"});
  other.text(7, "com.example");
  EXPECT_EQ(refusal(model(graph({other}, {value("x", 1, {})}, {value("y", 1, {})}))),
            "m: needs what this library does not run: Relu (opset 17) of the domain "
            "\"com.example\" at \"make y\"" +
                end);
  const Message sequence = Message().text(1, "x").message(2, Message().message(4, Message()));
  EXPECT_EQ(refusal(model(graph({}, {sequence}, {sequence}))),
            "m: needs what this library does not run: an input that is a sequence at \"x\"; an "
            "output that is a sequence at \"x\"" +
                end);
}

TEST(Onnx, RefusesDamagedGraphs) {
  EXPECT_EQ(refusal(model(graph({node("Relu", {"z"}, {"y"})}, {}, {}))),
            "m: is damaged: node \"make y\" (Relu of opset 17) reads \"z\", which is not there "
            "before it");
  EXPECT_EQ(refusal(model(graph({}, {}, {value("y", 1, {})}))),
            "m: is damaged: the output reads \"y\", which is not there before it");
  EXPECT_EQ(refusal(model(graph({}, {}, {value("", 1, {})}))),
            "m: is damaged: an output without a name");
  EXPECT_EQ(refusal(model(graph({node("Relu", {"x"}, {"x"})}, {value("x", 1, {})}, {}))),
            "m: is damaged: the value \"x\" is made twice");
}

TEST(Onnx, ErrorsNameTheNode) {
  const OnnxModel model = operator_alone("Add", {zeros({2}), zeros({3})}, f32);
  EXPECT_EQ(
      error_of([&] {
        model({zeros({2}), zeros({3})});
      }),
      "m: node \"make y\" (Add of opset 17): broadcast: the shapes (2,) and (3,) do not broadcast: "
      "axes must be equal or 1, counted from the last");
}

// Else what is changed in them would not reach the operators.
TEST(Onnx, TheSeedsOfTheFuzzerRun) {
  int number = 0;
  for (const std::string& seed : fuzzing::onnx_seeds()) {
    SCOPED_TRACE(number++);
    const OnnxModel model = parse_onnx(bytes_of(seed), "m");
    Shape shape;
    for (const OnnxExtent& axis : *model.inputs()[0].shape)
      shape.push_back(axis.extent < 0 ? 2 : axis.extent);
    EXPECT_EQ(error_of([&] { model({ones(shape, model.inputs()[0].dtype)}); }), "no error");
  }
}

}  // namespace
}  // namespace tensor::testing

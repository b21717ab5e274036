// ONNX models in parts: what a traced call cannot compute is set aside and runs eagerly.
#include "models/service/model.h"
#include "tests/headers.h"
#include "tests/io/io_testing.h"
#include "tests/onnx_writer.h"
#include "tests/seed.h"

namespace tensor::testing {
namespace {

using namespace by_hand;
using check::error_of;
using Values = std::vector<Tensor>;

// Small integers, whose sums of products are exact in float32: results are equal bit for bit.
Tensor integers(Generator& random, const Shape& shape) {
  return random.randint(-4, 5, shape).to(f32);
}

std::vector<TensorType> types_of(const Values& values) {
  std::vector<TensorType> types;
  for (const Tensor& x : values) types.push_back(x.type());
  return types;
}

void expect_equal(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].type(), want[i].type()) << i;
    EXPECT_TRUE(array_equal(got[i], want[i])) << i;
  }
}

// In parts twice, and the head compiled and the rest eagerly, against all of it eagerly.
void expect_parts(const OnnxModel& model, const Values& inputs) {
  const Values want = model(inputs);
  const TensorFunction run = model.in_parts({.threads = 1});
  for (int i = 0; i < 2; ++i) expect_equal(run(inputs), want);
  const OnnxSplit parts = model.split(types_of(inputs));
  expect_equal(parts.rest(compile(parts.head, {.threads = 1})(inputs)), want);
}

Message squeezed(const std::string& from, const std::string& to) {
  return node("Reshape", {from, "minus one"}, {to});
}
const Message kMinusOne = tensor<std::int64_t>("minus one", {-1}, {1});
const Message kWeights = tensor<float>("w", {1, -2, 3, 0, 1, 2, -1, 1, 0}, {3, 3});

// h = relu(x w); the rows of h whose first column is not 0, times w again: h, which, y.
Message picked() {
  return model(
      graph({node("MatMul", {"x", "w"}, {"m"}), node("Relu", {"m"}, {"h"}),
             node("Slice", {"h", "zero", "first", "first"}, {"column"}),
             squeezed("column", "flags"), node("NonZero", {"flags"}, {"places"}),
             squeezed("places", "which"), node("Gather", {"h", "which"}, {"rows"}),
             node("Neg", {"m"}, {"late"}), node("MatMul", {"rows", "w"}, {"y"})},
            {value("x", 1, {"n", "3"})},
            {value("h", 1, {"n", "3"}), value("which", 7, {"k"}), value("y", 1, {"k", "3"}),
             value("late", 1, {"n", "3"}), value("w", 1, {"3", "3"}), value("x", 1, {"n", "3"})},
            {kWeights, kMinusOne, tensor<std::int64_t>("zero", {0}, {1}),
             tensor<std::int64_t>("first", {1}, {1})}));
}

TEST(OnnxParts, WhatDependsOnElementsComesLater) {
  const OnnxModel model = parsed(picked());
  Generator random(check::seed());
  for (const std::int64_t rows : {1, 5, 40}) expect_parts(model, {integers(random, {rows, 3})});
  expect_parts(model, {zeros({4, 3})});  // no row at all
  const OnnxSplit parts = model.split({TensorType{{4, 3}}});
  EXPECT_EQ(parts.node, "node \"make places\" (NonZero of opset 17)");
  EXPECT_EQ(parts.head.operators(),
            (std::map<std::string, std::int64_t>{
                {"MatMul", 1}, {"Neg", 1}, {"Relu", 1}, {"Reshape", 1}, {"Slice", 1}}));
  EXPECT_EQ(parts.rest.operators(),
            (std::map<std::string, std::int64_t>{
                {"Gather", 1}, {"MatMul", 1}, {"NonZero", 1}, {"Reshape", 1}}));
  TextWriter text;
  for (const OnnxValue& value : parts.rest.inputs()) text << value << "; ";
  EXPECT_EQ(text.str(), "x f32(4, 3); h f32(4, 3); flags f32(4); late f32(4, 3); ");
}

// Numbers of other rows one after the other: as many lists of types as are kept, and more.
TEST(OnnxParts, TakeWhateverShapesCome) {
  const OnnxModel model = parsed(picked());
  const TensorFunction run = model.in_parts({.threads = 1});
  Generator random(check::seed());
  for (int round = 0; round < 2; ++round)
    for (std::int64_t rows = 1; rows <= 11; ++rows) {
      const Values x{integers(random, {rows, 3})};
      expect_equal(run(x), model(x));
    }
}

TEST(OnnxParts, RunInAnyNumberOfThreads) {
  const OnnxModel model = parsed(picked());
  const TensorFunction run = model.in_parts({.threads = 1});
  Generator random(check::seed());
  std::vector<Values> inputs;
  for (std::int64_t i = 0; i < 4; ++i) inputs.push_back({integers(random, {5 + i % 2, 3})});
  std::vector<Values> got(inputs.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      threads.emplace_back([&, i] { got[i] = run(inputs[i]); });
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_equal(got[i], model(inputs[i]));
}

TEST(OnnxParts, ElementsMayBeNeededFirst) {
  const OnnxModel model = parsed(by_hand::model(
      graph({node("NonZero", {"x"}, {"places"}), node("Shape", {"places"}, {"size"}),
             node("Cast", {"places"}, {"numbers"}, {attribute("to", 1)}),
             node("MatMul", {"w", "numbers"}, {"y"}), node("NonZero", {"y"}, {"z"})},
            {value("x", 1, {"a", "b", "c"})},
            {value("y", 1, {"3", "k"}), value("z", 7, {"2", "l"}), value("size", 7, {"2"})},
            {kWeights})));
  Generator random(check::seed());
  expect_parts(model, {integers(random, {2, 3, 4})});
  const OnnxSplit parts = model.split({TensorType{{2, 3, 4}}});
  EXPECT_EQ(parts.head.operators().size(), 0U);
}

// Branches of other shapes, and one that is wrong unless it is taken.
TEST(OnnxParts, ConditionsMayBeComputed) {
  const auto chosen = [](const Message& otherwise) {
    return parsed(by_hand::model(graph(
        {node("Mul", {"x", "x"}, {"squares"}),
         node("ReduceMax", {"x"}, {"top"}, {attribute("keepdims", 0)}),
         node("Greater", {"top", "zero"}, {"c"}),
         node("If", {"c"}, {"b"},
              {graph_attribute("then_branch", graph({node("Neg", {"squares"}, {"r"})}, {},
                                                    {value("r", 1, {"4"})}, {})),
               graph_attribute("else_branch", graph({otherwise}, {}, {value("r", 1, {"n"})}, {}))}),
         node("Add", {"b", "b"}, {"y"})},
        {value("x", 1, {"4"})}, {value("y", 1, {"n"}), value("squares", 1, {"4"})},
        {tensor<float>("zero", {0}, {}), tensor<std::int64_t>("three", {3}, {1})})));
  };
  const Tensor positive = array({1.0F, 2.0F, -3.0F, 0.0F});
  const OnnxModel other_shape =
      chosen(node("Concat", {"x", "squares"}, {"r"}, {attribute("axis", 0)}));
  expect_parts(other_shape, {positive});
  expect_parts(other_shape, {-abs(positive)});
  EXPECT_EQ(other_shape.split({positive.type()}).node, "node \"make b\" (If of opset 17)");
  EXPECT_NE(error_of([&] {
              compile(other_shape)({positive});
            }).find("its branches must give equal types where it is compiled: run it eagerly"),
            std::string::npos);
  const OnnxModel wrong = chosen(node("Reshape", {"x", "three"}, {"r"}));
  expect_parts(wrong, {positive});
  const std::string why = error_of([&] { wrong({-abs(positive)}); });
  EXPECT_NE(why.find("node \"make r\" (Reshape of opset 17): reshape: "), std::string::npos) << why;
  EXPECT_EQ(error_of([&] { wrong.in_parts({.threads = 1})({-abs(positive)}); }), why);
  EXPECT_NE(error_of([&] {
              compile(wrong)({positive});
            }).find("both branches must run where it is compiled, and one has the error: "),
            std::string::npos);
}

// s = s + x as often as the largest element says.
TEST(OnnxParts, LoopsMayEndWhereTheyComputeIt) {
  const Message body = graph({node("Add", {"s", "x"}, {"t"}), node("Identity", {"c"}, {"on"})},
                             {value("i", 7, {}), value("c", 9, {}), value("s", 1, {"2"})},
                             {value("on", 9, {}), value("t", 1, {"2"})});
  const OnnxModel model = parsed(by_hand::model(
      graph({node("ReduceMax", {"x"}, {"top"}, {attribute("keepdims", 0)}),
             node("Cast", {"top"}, {"n"}, {attribute("to", 7)}), node("Neg", {"x"}, {"first"}),
             node("Loop", {"n", "", "first"}, {"y"}, {graph_attribute("body", body)})},
            {value("x", 1, {"2"})}, {value("y", 1, {"2"})}, {})));
  for (const float most : {0.0F, 1.0F, 5.0F}) expect_parts(model, {array({most, -2.0F})});
  EXPECT_EQ(model.split({TensorType{{2}}}).node, "node \"make y\" (Loop of opset 17)");
}

TEST(OnnxParts, AModelMayBeOne) {
  const OnnxModel model = parsed(
      by_hand::model(graph({node("MatMul", {"x", "w"}, {"y"})}, {value("x", 1, {"n", "3"})},
                           {value("y", 1, {"n", "3"}), value("y", 1, {"n", "3"})}, {kWeights})));
  Generator random(check::seed());
  const Values x{integers(random, {6, 3})};
  expect_parts(model, x);
  const OnnxSplit parts = model.split(types_of(x));
  EXPECT_EQ(parts.node, "");
  EXPECT_EQ(parts.head.operators(), model.operators());
  EXPECT_EQ(parts.rest.operators().size(), 0U);
}

TEST(OnnxParts, RefuseWhatTheModelRefuses) {
  const OnnxModel model = parsed(picked());
  const TensorFunction run = model.in_parts({.threads = 1});
  for (const Values& wrong : {Values{}, Values{zeros({2, 2})}, Values{zeros({2, 3}, f64)}}) {
    const std::string why = error_of([&] { model(wrong); });
    EXPECT_NE(why, "no error");
    EXPECT_EQ(error_of([&] { run(wrong); }), why);
    EXPECT_EQ(error_of([&] { model.split(types_of(wrong)); }), why);
  }
  // What only elements tell: an index out of bounds behind the node that is set aside.
  const OnnxModel outside = parsed(by_hand::model(graph(
      {node("NonZero", {"x"}, {"places"}), node("Gather", {"short", "places"}, {"y"})},
      {value("x", 1, {"n"})}, {value("y", 1, {"1", "k"})}, {tensor<float>("short", {1, 2}, {2})})));
  const Values x{ones({3})};
  const std::string why = error_of([&] { outside(x); });
  EXPECT_NE(why.find("node \"make y\" (Gather of opset 17): "), std::string::npos) << why;
  EXPECT_EQ(error_of([&] { outside.in_parts({.threads = 1})(x); }), why);
}

TEST(OnnxParts, ServicesRunThem) {
  const OnnxModel model = parsed(picked());
  models::service::OpenOptions options;
  options.threads = 1;
  const auto service = models::service::Model::parse(bytes_of(picked().str()), "m", options);
  Generator random(check::seed());
  for (const std::int64_t rows : {3, 8, 3}) {
    const Tensor x = integers(random, {rows, 3});
    const auto want = model.run({{"x", x}});
    const nn::StateDict got = service->run({{"x", x}});
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want) EXPECT_TRUE(array_equal(got.at(name), value)) << name;
  }
}

}  // namespace
}  // namespace tensor::testing

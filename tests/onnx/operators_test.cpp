// Operators by hand, where opsets differ or the standard's older test models say nothing. The
// values are those of the standard's reference implementation, rounded to six decimals; ours have a
// few roundings of float32 numbers up to 7.
#include "tests/error_of.h"
#include "tests/headers.h"
#include "tests/onnx_writer.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

// 0 to 6 and again, over `divisor`, less `offset`.
Tensor counted(const Shape& shape, double divisor = 1, double offset = 0) {
  return ((arange(num_elements(shape)) % 7).astype(f32) / divisor - offset).reshape(shape);
}

struct Case {
  std::string type;
  std::int64_t opset;
  std::vector<Tensor> inputs;
  std::vector<Message> attributes;
  Shape shape;
  std::vector<double> values;
};

void expect_output(const Case& c) {
  SCOPED_TRACE(c.type + " of opset " + std::to_string(c.opset));
  std::vector<Tensor> given;
  for (const Tensor& x : c.inputs)
    if (x.defined()) given.push_back(x);
  const Tensor got = operator_alone(c.type, c.inputs, f32, c.attributes, c.opset)(given)[0];
  ASSERT_EQ(got.shape(), c.shape);
  EXPECT_TRUE(allclose(got, array(c.values, c.shape), 0, 5e-6)) << got;
}

TEST(OnnxOperators, AreThoseOfNewerOpsets) {
  const Tensor f8 = counted({1, 4, 2});
  const std::vector<Case> cases = {
      {"Pad",
       18,
       {counted({2, 3}), array({1, 2}).to(i64), {}, array({1}).to(i64)},
       {attribute("mode", "edge")},
       {2, 6},
       {0, 0, 1, 2, 2, 2, 3, 3, 4, 5, 5, 5}},
      {"Pad",
       19,
       {counted({2, 3}), array({2, 3}).to(i64), {}, array({-1}).to(i64)},
       {attribute("mode", "wrap")},
       {2, 8},
       {1, 2, 0, 1, 2, 0, 1, 2, 4, 5, 3, 4, 5, 3, 4, 5}},
      {"Resize",
       18,
       {counted({1, 1, 2, 3}), {}, {}, array({4, 4}).to(i64)},
       {attribute("mode", "linear"), attribute("axes", Ints{2, 3}),
        attribute("keep_aspect_ratio_policy", "not_larger")},
       {1, 1, 3, 4},
       {0, 0.625, 1.375, 2, 1.875, 2.5, 3.25, 3.875, 3, 3.625, 4.375, 5}},
      {"Resize",
       18,
       {counted({1, 1, 4, 4}), {}, array({1.0F, 1.0F, 0.6F, 0.6F})},
       {attribute("mode", "cubic"), attribute("antialias", 1)},
       {1, 1, 2, 2},
       {1.940206, 3.217213, 3.150577, 3.255953}},
      {"Resize",
       19,
       {counted({1, 1, 2, 3}), {}, array({1.0F, 1.0F, 2.3F, 0.7F})},
       {attribute("mode", "linear"),
        attribute("coordinate_transformation_mode", "half_pixel_symmetric")},
       {1, 1, 4, 2},
       {0.285714, 1.714286, 1.13354, 2.562112, 2.437888, 3.86646, 3.285714, 4.714285}},
      {"GroupNormalization",
       18,
       {f8, array({1.0F, 2.0F}), array({0.0F, 1.0F})},
       {attribute("num_groups", 2)},
       {1, 4, 2},
       {-1.341636, -0.447212, 0.447212, 1.341636, 1.219528, 2.097642, 2.975755, -2.292925}},
      {"GroupNormalization",
       21,
       {f8, array({1.0F, 2.0F, 3.0F, 4.0F}), array({0.0F, 1.0F, 2.0F, 3.0F})},
       {attribute("num_groups", 2)},
       {1, 4, 2},
       {-1.341636, -0.447212, 1.894424, 3.683271, 2.329292, 3.646462, 6.95151, -3.58585}},
      {"AveragePool",
       19,
       {counted({1, 1, 3, 4})},
       {attribute("kernel_shape", Ints{2, 2}), attribute("dilations", Ints{2, 2}),
        attribute("pads", Ints{1, 0, 0, 1}), attribute("count_include_pad", 0)},
       {1, 1, 2, 3},
       {5, 2.5, 6, 1.5, 2.5, 2.5}},
      {"ReduceMean",
       18,
       {counted({2, 3}), array({-1}).to(i64)},
       {attribute("keepdims", 0)},
       {2},
       {1, 4}},
      {"ReduceMean", 13, {counted({2, 3})}, {attribute("axes", Ints{0})}, {1, 3}, {1.5, 2.5, 3.5}},
      {"Mish", 18, {array({-2.0F, 0.0F, 3.0F})}, {}, {3}, {-0.252501, 0, 2.986535}},
      {"Swish", 24, {array({-2.0F, 0.0F, 3.0F})}, {}, {3}, {-0.238406, 0, 2.857722}},
      {"Swish",
       24,
       {array({-2.0F, 0.0F, 3.0F})},
       {attribute("alpha", 2.0F)},
       {3},
       {-0.035972, 0, 2.992582}},
      {"Gelu",
       20,
       {array({-2.0F, 0.0F, 3.0F})},
       {attribute("approximate", "tanh")},
       {3},
       {-0.045402, 0, 2.996363}},
      {"DequantizeLinear",
       19,
       {array({{1, 2}, {3, 4}}).to(i8), array({0.5F, 2.0F}), array({1, -1}).to(i8)},
       {attribute("axis", 0)},
       {2, 2},
       {0, 0.5, 8, 10}},
      {"CumSum",
       14,
       {counted({5}), full({}, 0, i64)},
       {attribute("exclusive", 1), attribute("reverse", 1)},
       {5},
       {10, 9, 7, 4, 0}},
      {"Softmax",
       11,
       {zeros({2, 1, 2})},
       {attribute("axis", 0)},
       {2, 1, 2},
       {0.25, 0.25, 0.25, 0.25}},
      {"Softmax", 13, {zeros({2, 1, 2})}, {attribute("axis", 0)}, {2, 1, 2}, {0.5, 0.5, 0.5, 0.5}},
  };
  for (const Case& c : cases) expect_output(c);
}

TEST(OnnxOperators, RecurrentLayers) {
  const Tensor x = counted({2, 1, 2}, 7);
  expect_output({"LSTM",
                 14,
                 {x, counted({1, 8, 2}, 7, 0.4), counted({1, 8, 2}, 5, 0.5), counted({1, 16}, 9)},
                 {attribute("hidden_size", 2)},
                 {2, 1, 1, 2},
                 {0.202047, 0.029127, 0.360135, -0.064243}});
  expect_output({"GRU",
                 14,
                 {x, counted({1, 6, 2}, 7, 0.4), counted({1, 6, 2}, 5, 0.5), counted({1, 12}, 9)},
                 {attribute("hidden_size", 2), attribute("linear_before_reset", 1)},
                 {2, 1, 1, 2},
                 {0.192962, 0.327255, 0.306193, 0.530134}});
}

// Positions that fill a region, in order or not: the updates take the elements' places, or are
// added.
TEST(OnnxOperators, ScatterIntoRegions) {
  const Shape shape{3, 4, 2};
  const Tensor data = counted(shape, 3);
  const auto check = [&](const Ints& rows, const Ints& columns, bool is_last_first, bool adds) {
    SCOPED_TRACE(::testing::Message() << rows.front() << ", " << columns.front() << ": "
                                      << rows.size() << " x " << columns.size());
    Ints indices;
    for (const std::int64_t row : rows)
      for (const std::int64_t column : columns) indices.insert(indices.end(), {row, column});
    if (is_last_first) {
      std::reverse(indices.begin(), indices.end());
      for (std::size_t i = 0; i < indices.size(); i += 2) std::swap(indices[i], indices[i + 1]);
    }
    const auto count = static_cast<std::int64_t>(indices.size() / 2);
    const Tensor updates = counted({count, 2}, 1, 9);
    std::vector<double> want = data.to_vector<double>();
    const auto given = updates.to_vector<double>();
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto place = static_cast<std::size_t>(4 * indices[i / 2 * 2] + indices[i / 2 * 2 + 1]);
      double& element = want[2 * place + i % 2];
      element = adds ? element + given[i] : given[i];
    }
    std::vector<Message> attributes;
    if (adds) attributes.push_back(attribute("reduction", "add"));
    expect_output(
        {"ScatterND", 16, {data, array(indices, {count, 2}), updates}, attributes, shape, want});
  };
  for (const Ints& rows : {Ints{0}, Ints{1, 2}, Ints{0, 1, 2}})
    for (const Ints& columns : {Ints{0, 1}, Ints{1, 2}, Ints{3}, Ints{0, 1, 2, 3}, Ints{0, 2}})
      for (const bool is_last_first : {false, true})
        for (const bool adds : {false, true}) check(rows, columns, is_last_first, adds);
}

// Positions that are computed where the model is compiled, along whole lines.
TEST(OnnxOperators, ScatterAtPlacesThatAreComputed) {
  const Tensor data = counted({3, 4}, 3), updates = counted({2, 4}, 1, 9);
  const Tensor places = array({{2, 0, 1, -1}, {0, 1, 2, 0}}).to(i64);
  const std::vector<Tensor> inputs{data, places, updates};
  const OnnxModel model = operator_alone("ScatterElements", inputs, f32, {attribute("axis", 0)});
  std::vector<double> want = data.to_vector<double>();
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      const std::int64_t row = (places.at<std::int64_t>(i, j) + 3) % 3;
      want[static_cast<std::size_t>(4 * row + j)] = updates.item(i, j);
    }
  EXPECT_EQ(model(inputs)[0].to_vector<double>(), want);
  EXPECT_EQ(compile(model, {.threads = 1})(inputs)[0].to_vector<double>(), want);
}

// The errors that the operators have of their own.
std::string error_in(const std::string& type, const std::vector<Tensor>& inputs,
                     const std::vector<Message>& attributes = {}, std::int64_t opset = 17) {
  const std::string text = error_of([&] {
    std::vector<Tensor> given;
    for (const Tensor& x : inputs)
      if (x.defined()) given.push_back(x);
    operator_alone(type, inputs, f32, attributes, opset)(given);
  });
  const std::string start =
      "m: node \"make y\" (" + type + " of opset " + std::to_string(opset) + "): ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

Tensor whole(const std::vector<std::int64_t>& list) { return array(list); }

TEST(OnnxOperators, RefuseWhatDoesNotFit) {
  const Tensor x = ones({1, 4, 3, 3}), row = ones({6});
  EXPECT_EQ(error_in("Reshape", {row, whole({2, 0})}),
            "reshape: got the shape (2, 0), whose 0 has no axis of (6,)");
  EXPECT_EQ(error_in("Flatten", {row}, {attribute("axis", 3)}),
            "flatten: got the axis 3, need 0 to 1");
  EXPECT_EQ(error_in("Tile", {row, whole({1, 2})}), "tile: got 2 repeats for the shape (6,)");
  EXPECT_EQ(error_in("Split", {row, whole({2, 3})}),
            "split: got the sizes [2, 3], whose sum is not 6");
  EXPECT_EQ(error_in("Split", {row, whole({2, 9})}), "split: got the sizes [2, 9] of 6");
  EXPECT_EQ(error_in("Slice", {row, whole({0}), whole({1, 2})}),
            "slice: got 1 starts, 2 ends, 1 axes and 1 steps, need equally many");
  EXPECT_EQ(error_in("Slice", {row, whole({0}), whole({1}), whole({0}), whole({0})}),
            "slice: got a step of 0");
  EXPECT_EQ(error_in("Pad", {row, whole({1})}), "pad: got 1 pads for 1 axes, need two for each");
  EXPECT_EQ(error_in("Pad", {row, whole({-4, -4})}), "pad: cuts off 8 of 6 elements");
  EXPECT_EQ(error_in("Range", {full({}, 0, f32), full({}, 1, f32), full({}, 0, f32)}),
            "range: got a step of 0");
  EXPECT_EQ(error_in("DepthToSpace", {ones({1, 3, 2, 2})}, {attribute("blocksize", 2)}),
            "depth_to_space: got the shape (1, 3, 2, 2) and blocks of 2");
  EXPECT_EQ(error_in("GatherND", {x, whole({9})}),
            "positions: an index is out of bounds: axis 0 has the extent 1");
  EXPECT_EQ(error_in("TopK", {row, whole({7})}), "top_k: got k=7 of the shape (6,) along axis 0");
  for (const char* number : {"TopK", "Range"})
    EXPECT_NE(error_in(number, {row, zeros({0}, i64), row}), "") << "needs one number";
  EXPECT_EQ(error_in("Conv", {x, ones({1, 4, 5, 5})}),
            "window: a kernel of [5, 5] is larger than the padded image of the shape (1, 4, 3, 3)");
  EXPECT_EQ(error_in("Conv", {x, ones({1, 4, 3, 3})}, {attribute("strides", Ints{0, 1})}),
            "strides: got [0, 1], need numbers from 1 to below 2^31");
  EXPECT_EQ(error_in("Conv", {x, ones({1, 4, 3, 3})}, {attribute("pads", Ints{1, 1})}),
            "pads: got 2 numbers, need 4");
  EXPECT_EQ(error_in("MaxPool", {row}, {attribute("kernel_shape", Ints{2, 2})}),
            "window: got an image of the shape (6,) and a kernel of 2 axes");
  EXPECT_EQ(error_in("MaxPool", {x}), "attributes: there is no kernel_shape, which is needed");
  EXPECT_EQ(error_in("Resize", {x, {}, array({1.0F, 1.0F})}), "resize: got 2 scales for 4 axes");
  EXPECT_EQ(error_in("Resize", {x, {}, {}, whole({1, 4, 0, 3})}),
            "resize: from an extent of 3 to 0, need at least 1");
  EXPECT_EQ(error_in("Gemm", {row, ones({6, 2})}),
            "gemm: got the shapes (6,) and (6, 2), need matrices");
  EXPECT_EQ(error_in("Clip", {{}, full({}, 1, f32)}), "inputs: input 0 is left out, but needed");
}

}  // namespace
}  // namespace tensor::testing

// What lies in memory between convolutions is narrow, and nothing else changes its type.
#include "src/trace/passes/cast_images.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/quantize.h"
#include "src/trace/passes/round_rows.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using tn::ValueId;
using Tensors = std::vector<Tensor>;

namespace {

Tensor random(const tn::Shape& shape, double deviation = 1) {
  static tn::Generator numbers(2026);
  return numbers.normal(shape, 0, deviation);
}

Graph cast(const tn::TensorFunction& function, const tn::Shape& input, tn::DType dtype) {
  const Graph graph = tn::trace(function, {{input, tn::f32}});
  const Graph narrow = tn::cast_images(tn::cast_products(graph, dtype), dtype);
  tn::verify(narrow, "cast_images");
  return tn::eliminate_common_and_dead(narrow);
}

std::vector<ValueId> all(const Graph& graph, tn::Op op) {
  std::vector<ValueId> found;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, op)) found.push_back(id);
  return found;
}

// A stem, a pool, a block with a residual, a resize and a head with its own resize.
Tensors network(const Tensor& x) {
  static const Tensor stem = random({8, 3, 3, 3}, 0.2f), left = random({8, 8, 3, 3}, 0.1f),
                      right = random({8, 8, 1, 1}, 0.3f), head = random({4, 8, 1, 1}, 0.3f),
                      bias = random({8});
  const auto bilinear = tn::InterpolateOptions{tn::Interpolation::bilinear};
  Tensor y = tn::relu(tn::conv2d(x, stem, bias, {.padding = 1}));
  y = tn::max_pool2d(y, 2, 2, 0);
  y = tn::relu(y + tn::conv2d(tn::relu(tn::conv2d(y, left, bias, {.padding = 1})), right));
  y = tn::interpolate(y, {14, 14}, bilinear);
  return {tn::interpolate(tn::conv2d(y, head), {28, 28}, bilinear)};
}

TEST(CastImages, GroupNormsAndConcatenationsReadTheNarrowType) {
  static const Tensor first = random({8, 3, 3, 3}), second = random({8, 16, 3, 3}),
                      scale = random({8}), shift = random({8});
  const Graph graph = cast(
      [](const Tensors& in) -> Tensors {
        const Tensor x = tn::conv2d(in[0], first, shift, {.padding = 1});
        const Tensor y = tn::silu(tn::group_norm(x, 2, scale, shift));
        return {tn::conv2d(tn::concatenate({x, y}, 1), second, shift, {.padding = 1})};
      },
      {1, 3, 12, 12}, tn::f16);
  for (const ValueId parts : all(graph, tn::Op::concatenate))
    EXPECT_EQ(graph.type(parts).dtype, tn::f16);
  // The norm reads it and computes in float32; what it makes is not rounded before the scale.
  for (const tn::Op op : {tn::Op::mean, tn::Op::var}) {
    const auto sums = all(graph, op);
    ASSERT_EQ(sums.size(), 1u);
    EXPECT_EQ(graph.type(sums[0]).dtype, tn::f32);
    const ValueId groups = graph[sums[0]].inputs[0];
    ASSERT_TRUE(graph.is_op(groups, tn::Op::astype));
    EXPECT_EQ(graph.type(graph[groups].inputs[0]).dtype, tn::f16);
  }
  for (const ValueId id : all(graph, tn::Op::astype))
    EXPECT_FALSE(graph.is_op(graph[id].inputs[0], tn::Op::subtract));
}

TEST(CastImages, WindowsBetweenConvolutionsRunOnTheNarrowType) {
  const Graph graph =
      cast([](const Tensors& in) { return network(in[0]); }, {1, 3, 12, 12}, tn::bf16);
  for (const ValueId pool : all(graph, tn::Op::max_pool2d))
    EXPECT_EQ(graph.type(pool).dtype, tn::bf16);
  const auto resizes = all(graph, tn::Op::interpolate);
  ASSERT_EQ(resizes.size(), 2u);
  EXPECT_EQ(graph.type(resizes[0]).dtype, tn::bf16);
  EXPECT_EQ(graph.type(resizes[1]).dtype, tn::f32) << "behind the last convolution";
}

TEST(CastImages, AResidualIsReadInTheFormThatTheConvolutionReads) {
  const Graph graph =
      cast([](const Tensors& in) { return network(in[0]); }, {1, 3, 12, 12}, tn::f16);
  // Only one reader is left for each f32 image: what follows it in the same kernel.
  for (ValueId id = 0; id < graph.size(); ++id) {
    const tn::Node& node = graph[id];
    if (node.type.shape.rank() != 4 || node.type.dtype != tn::f32 ||
        node.kind != tn::NodeKind::operation)
      continue;
    EXPECT_LE(tn::consumers(graph)[static_cast<std::size_t>(id)].size(), 1u) << graph;
  }
}

// What is rounded to bytes is rounded where it is made; who else reads it reads the narrow type.
TEST(CastImages, ImagesOfBytesHaveANarrowCopy) {
  static const Tensor stem = random({16, 3, 3, 3}), filters = random({16, 16, 3, 3}, 0.1),
                      head = random({4, 16, 1, 1});
  const auto f = [](const Tensors& in) -> Tensors {
    const Tensor x = tn::relu(tn::conv2d(in[0], stem, {}, {.padding = 1}));
    return {tn::conv2d(tn::relu(x + tn::conv2d(x, filters, {}, {.padding = 1})), head)};
  };
  const Graph traced =
      tn::fold_constants(tn::trace(f, {{{1, 3, 8, 8}, tn::f32}}, {{"block.weight", filters}}));
  const Graph bytes = tn::quantize_products(traced, {}, true, &tn::quantize, {{"block", 0.1F}}, 16);
  ASSERT_EQ(all(bytes, tn::Op::quantized_conv2d).size(), 1u);
  const Graph graph =
      tn::eliminate_common_and_dead(tn::cast_images(tn::cast_products(bytes, tn::f16), tn::f16));
  for (const ValueId id : all(graph, tn::Op::astype))
    if (graph.type(id).dtype == tn::i8) {
      const auto rounding = tn::rounding_of(graph, id);
      ASSERT_TRUE(rounding) << graph;
      EXPECT_TRUE(graph.is_op(rounding->x, tn::Op::relu)) << graph;
    }
  int residuals = 0;
  for (const ValueId sum : all(graph, tn::Op::add))
    for (const ValueId input : graph[sum].inputs)
      if (graph.is_op(input, tn::Op::astype))
        residuals += graph.type(graph[input].inputs[0]).dtype == tn::f16;
  EXPECT_EQ(residuals, 1) << graph;
}

TEST(CastImages, ValuesOutsideOfImagesKeepTheirType) {
  // The image that is returned, and the tokens, are not between convolutions.
  const auto function = [](const Tensors& in) -> Tensors {
    static const Tensor weight = random({8, 3, 2, 2}), square = random({8, 8});
    const Tensor image = tn::gelu(tn::conv2d(in[0], weight, {}, {.stride = 2}));
    const Tensor tokens = tn::transpose(tn::reshape(image, {1, 8, 9}), {0, 2, 1});
    return {tn::max_pool2d(image, 3, 3, 0), tokens + tn::matmul(tokens, square)};
  };
  const Graph graph = cast(function, {1, 3, 6, 6}, tn::bf16);
  const Graph plain = tn::eliminate_common_and_dead(
      tn::cast_products(tn::trace(function, {{{1, 3, 6, 6}, tn::f32}}), tn::bf16));
  EXPECT_EQ(graph.size(), plain.size()) << graph;
  EXPECT_EQ(all(graph, tn::Op::astype).size(), all(plain, tn::Op::astype).size());
}

TEST(CastImages, ChangesResultsByRoundingsOnly) {
  const auto function = [](const Tensors& in) { return network(in[0]); };
  const Tensor x = random({1, 3, 12, 12});
  const auto exact = function({x})[0].to_vector<double>();
  double square = 0;
  for (const double value : exact) square += value * value / static_cast<double>(exact.size());
  for (const auto& [dtype, step] : {std::pair{tn::bf16, 0x1p-8}, std::pair{tn::f16, 0x1p-11}}) {
    const auto got = tn::interpret(cast(function, x.shape(), dtype), {x})[0].to_vector<double>();
    // Each of eight roundings along the way moves a value by half a step of its size at most; they
    // hardly add up, but a value may be small beside what it was computed from.
    for (std::size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(got[i], exact[i], 8 * step * (std::abs(exact[i]) + std::sqrt(square)));
  }
}

}  // namespace

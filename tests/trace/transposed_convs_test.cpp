#include "src/trace/passes/transposed_convs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

TEST(TransposedConvs, AreConvolutionsOfPhases) {
  std::mt19937 random(static_cast<unsigned>(tn::check::seed()));
  tn::Generator numbers(tn::check::seed());
  const auto pick = [&](int least, int most) {
    return static_cast<std::int64_t>(least + random() % unsigned(most - least + 1));
  };
  int shifted = 0, dilated = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int64_t groups = pick(1, 3), channels = groups * pick(1, 3), outputs = pick(1, 3);
    tn::ConvTranspose2dOptions options;
    options.stride = {pick(1, 4), pick(1, 3)};
    options.padding = {pick(0, 4), pick(0, 2)};
    options.dilation = {pick(1, 3), pick(1, 2)};
    options.output_padding = {pick(0, 3), pick(0, 1)};
    options.groups = groups;
    const Tensor x = numbers.normal({pick(1, 2), channels, pick(1, 7), pick(1, 7)}),
                 weight = numbers.normal({channels, outputs, pick(1, 5), pick(1, 5)}),
                 bias = numbers.normal({groups * outputs});
    const bool has_bias = pick(0, 1) == 1, is_constant = pick(0, 2) > 0;
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor w = is_constant ? weight : in[1], b = is_constant ? bias : in[2];
      return {tn::conv_transpose2d(in[0], w, has_bias ? b : Tensor(), options)};
    };
    Graph before;
    try {
      before = tn::trace(f, {x.type(), weight.type(), bias.type()});
    } catch (const tn::UserError&) {
      continue;  // such an image or padding does not exist
    }
    SCOPED_TRACE(round);
    const Graph after = tn::drop_dead(tn::transposed_convs(before));
    EXPECT_EQ(count(after, tn::Op::conv_transpose2d), 0);
    EXPECT_EQ(count(after, tn::Op::conv2d), 1);
    // Every tap of every channel and the bias, in another order.
    const double terms = static_cast<double>(channels / groups * weight.shape(2) * weight.shape(3));
    expect_same(before, after, {x, weight, bias}, 4 * std::sqrt(terms + 1));
    shifted += count(after, tn::Op::slice) > 0;
    dilated += options.dilation.h > 1 && options.stride.h > 1;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(shifted, 20);
  EXPECT_GT(dilated, 20);
}

// As U-Nets have them: nothing is multiplied by zeros, and nothing is cut off.
TEST(TransposedConvs, OfTilesNeedNoMoreArithmetic) {
  const Tensor weight = tn::ones({6, 4, 2, 2});
  const Graph after = tn::transposed_convs(tn::trace(
      [&](const Tensors& in) -> Tensors {
        return {tn::conv_transpose2d(in[0], weight, {}, {.stride = 2})};
      },
      {{{1, 6, 5, 7}, tn::f32}}));
  EXPECT_EQ(count(after, tn::Op::slice), 0);
  for (const tn::Node& node : after.nodes())
    if (node.op == tn::Op::conv2d && node.kind == tn::NodeKind::operation) {
      EXPECT_EQ(after.type(node.inputs[1]).shape, tn::Shape({16, 6, 1, 1}));
      EXPECT_TRUE(after.is_constant(node.inputs[1]));
    }
}

}  // namespace

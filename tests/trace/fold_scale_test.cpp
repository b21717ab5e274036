// Scales and shifts folded into the weights of products and convolutions, against the eager run.
#include "src/trace/passes/fold_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

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

constexpr std::int64_t kIn = 8, kOut = 12;

// A convolution of these weights with what follows it, in the type of its input.
struct ConvCase {
  tn::Conv2dOptions options;
  Tensor weight, bias;  // bias may be undefined
  std::function<Tensor(const Tensor&)> after;
  Tensor scale, shift;  // what `after` amounts to, [kOut] in f64

  Tensor operator()(const Tensor& x) const {
    const tn::DType dtype = x.dtype();
    return after(
        tn::conv2d(x, weight.astype(dtype), bias.defined() ? bias.astype(dtype) : bias, options));
  }
};

// One convolution is left, and what it computes is as near to float64 as its sums allow.
void expect_folded(const ConvCase& c, const Tensor& x) {
  const Graph before = tn::fold_constants(
      tn::trace([&](const Tensors& in) -> Tensors { return {c(in[0])}; }, {x.type()}));
  const Graph after = tn::eliminate_common_and_dead(tn::fold_scale(before));
  tn::verify(after, "fold_scale");
  ASSERT_EQ(std::count_if(after.nodes().begin(), after.nodes().end(),
                          [](const auto& node) { return node.kind == tn::NodeKind::operation; }),
            1)
      << after;
  const auto got = tn::interpret(after, {x})[0].to_vector<double>();
  const Tensor wide = x.astype(tn::f64), weight = c.weight.astype(tn::f64);
  const auto want = c(wide).to_vector<double>();

  // A sum of n terms, each of them rounded a few times: the weight times its scale, the product and
  // the sum so far. Such roundings are independent, so that they add up to some eps * sqrt(n) times
  // the sum of the magnitudes of the terms. Those of bias and shift are two more.
  const auto along_channels = [](const Tensor& v) { return tn::abs(v).reshape({kOut, 1, 1}); };
  Tensor magnitude =
      tn::conv2d(tn::abs(wide), tn::abs(weight), {}, c.options) * along_channels(c.scale) +
      along_channels(c.shift);
  if (c.bias.defined()) magnitude = magnitude + along_channels(c.bias.astype(tn::f64) * c.scale);
  const double terms = static_cast<double>(weight.size() / kOut + 2);
  const auto most = (magnitude * (0x1p-23 * std::sqrt(terms))).to_vector<double>();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], most[i]) << i;
}

// Calls check(case) with every combination of groups and bias; `after` is still to be set.
void for_convolutions(tn::Generator& random, const std::function<void(ConvCase)>& check) {
  for (const std::int64_t groups : {1, 2, 4})
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << groups << " groups" << (has_bias ? ", bias" : ""));
      ConvCase c;
      c.options = {.stride = 2, .padding = 1, .groups = groups};
      c.weight = random.normal({kOut, kIn / groups, 3, 3});
      if (has_bias) c.bias = random.normal({kOut});
      check(c);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(FoldScale, ScalesAndShiftsOfEachSignFoldIntoConvolutions) {
  tn::Generator random(tn::check::seed());
  for_convolutions(random, [&](ConvCase c) {
    const Tensor x = random.normal({2, kIn, 9, 7});
    const auto factors = [&](int sign) {  // 0: of both signs
      const Tensor v = random.normal({kOut, 1, 1});
      return sign == 0 ? v : tn::abs(v) * static_cast<double>(sign);
    };
    for (const int of_scale : {-1, 0, 1})
      for (const int of_shift : {-1, 0, 1}) {
        SCOPED_TRACE(testing::Message() << "scale " << of_scale << ", shift " << of_shift);
        const Tensor scale = factors(of_scale), shift = factors(of_shift);
        c.scale = scale.astype(tn::f64).reshape({kOut});
        c.shift = shift.astype(tn::f64).reshape({kOut});
        c.after = [=](const Tensor& y) {
          return y * scale.astype(y.dtype()) + shift.astype(y.dtype());
        };
        ASSERT_NO_FATAL_FAILURE(expect_folded(c, x));
      }
  });
}

TEST(FoldScale, BatchNormFoldsIntoConvolutions) {
  tn::Generator random(tn::check::seed());
  for_convolutions(random, [&](ConvCase c) {
    const Tensor mean = random.normal({kOut}), variance = random.uniform({kOut}, 0.1, 3),
                 gamma = random.normal({kOut}), beta = random.normal({kOut});
    c.scale = gamma.astype(tn::f64) / tn::sqrt(variance.astype(tn::f64) + 1e-5);
    // The shift is a difference, whose terms are rounded by themselves.
    c.shift = tn::abs(beta.astype(tn::f64)) + tn::abs(mean.astype(tn::f64) * c.scale);
    c.after = [=](const Tensor& y) {
      const tn::DType d = y.dtype();
      return tn::batch_norm(y, mean.astype(d), variance.astype(d), gamma.astype(d), beta.astype(d));
    };
    ASSERT_NO_FATAL_FAILURE(expect_folded(c, random.normal({2, kIn, 9, 7})));
  });
}

TEST(FoldScale, ScalesFoldIntoMatmul) {
  tn::Generator random(23);
  const Tensor x = random.normal({2, 3, 4}), weight = random.normal({4, 5}),
               scale = random.normal({5});
  const auto f = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight) * scale}; };
  const Graph before = tn::trace(f, {x.type()}),
              after = tn::eliminate_common_and_dead(tn::fold_scale(before));
  EXPECT_EQ(count(after, tn::Op::multiply), 0);
  expect_same(before, after, {x}, 8);  // four products and sums, each rounded once
  // Not when the product itself is an output.
  const auto shared = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::matmul(in[0], weight);
    return {y, y * scale};
  };
  EXPECT_EQ(count(tn::fold_scale(tn::trace(shared, {x.type()})), tn::Op::multiply), 1);
}

TEST(FoldScale, NumbersFoldIntoTheWeightsBehindABiasAndViews) {
  tn::Generator random(24);
  const Tensor x = random.normal({2, 3, 4}), weight = random.normal({8, 4}),
               bias = random.normal({8});
  const auto heads = [](const Tensor& y) {
    return y.reshape({2, 3, 2, 4}).transpose({0, 2, 1, 3});
  };
  const auto f = [&](const Tensors& in) -> Tensors {
    return {heads(tn::linear(in[0], weight, bias)) * 0.3};
  };
  const Graph before = tn::fold_constants(tn::trace(f, {x.type()})),
              after = tn::eliminate_common_and_dead(tn::fold_scale(before));
  EXPECT_EQ(count(after, tn::Op::multiply), 0);
  expect_same(before, after, {x}, 16);  // as above, and the factor rounds twice
  for (tn::ValueId id = 0; id < after.size(); ++id)
    if (after.is_op(id, tn::Op::matmul)) {
      const tn::Strides strides = after[after[id].inputs[1]].constant.strides();
      EXPECT_LT(strides[0], strides[1]) << "the weights lie as they did: outputs one by one";
    }
  // Not when something else reads what is scaled.
  const auto shared = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::linear(in[0], weight, bias);
    return {heads(y) * 0.3, y + 1};
  };
  EXPECT_EQ(
      count(tn::fold_scale(tn::fold_constants(tn::trace(shared, {x.type()}))), tn::Op::multiply),
      1);
}

// Layer scale makes weights so small that f16 would keep few of their digits.
TEST(FoldScale, SmallScalesStayOutsideOfWeightsInF16) {
  tn::Generator random(26);
  const auto multiplications = [&](double weights, double scale, tn::DType stored) {
    const Tensor weight = random.normal({8, 6, 3, 3}) * weights, matrix = random.normal({40, 8});
    const Tensor vector = random.uniform({8, 1, 1}, 0.5, 1.5) * scale;
    const auto f = [&](const Tensors& in) -> Tensors {
      return {tn::conv2d(in[0], weight) * vector,
              tn::matmul(in[1], matrix * weights) * vector.reshape({8})};
    };
    const Graph graph =
        tn::fold_constants(tn::trace(f, {{{1, 6, 9, 9}, tn::f32}, {{5, 40}, tn::f32}}));
    return count(tn::eliminate_common_and_dead(tn::fold_scale(graph, stored)), tn::Op::multiply);
  };
  EXPECT_EQ(multiplications(0.02, 1e-5, tn::f16), 2);
  EXPECT_EQ(multiplications(0.02, 1e-5, tn::f32), 0);
  EXPECT_EQ(multiplications(0.02, 1e-5, tn::bf16), 0);
  EXPECT_EQ(multiplications(0.02, 0.1, tn::f16), 0);
  EXPECT_EQ(multiplications(2, 1e-3, tn::f16), 0);
}

// A weight times a scale may be infinite, or have lost its digits, where the product is neither.
TEST(FoldScale, ScalesThatWeightsCannotTakeStay) {
  tn::Generator random(25);
  const auto multiplications = [&](const Tensor& weight, const Tensor& scale) {
    const auto f = [&](const Tensors& in) -> Tensors {
      return {tn::matmul(in[0], weight) * scale};
    };
    const Graph graph = tn::fold_constants(tn::trace(f, {{{3, 4}, weight.dtype()}}));
    return count(tn::eliminate_common_and_dead(tn::fold_scale(graph)), tn::Op::multiply);
  };
  const Tensor weight = random.normal({4, 5});
  for (const tn::DType dtype : {tn::f16, tn::bf16})
    for (const tn::Shape& shape : {tn::Shape{}, tn::Shape{5}})
      EXPECT_EQ(multiplications(weight.astype(dtype), tn::full(shape, 0.3, dtype)), 1);
  for (const double scale : {1e30, 1e-30, static_cast<double>(INFINITY)})
    for (const tn::Shape& shape : {tn::Shape{}, tn::Shape{5}})
      EXPECT_EQ(multiplications(weight, tn::full(shape, scale)), 1) << scale;
  // One channel that is switched off does not keep the others from it.
  const Tensor pruned = tn::array({1.0f, 0.0f, 1e-40f, -2.0f, 0.5f});
  EXPECT_EQ(multiplications(weight, pruned), 0);
}

}  // namespace

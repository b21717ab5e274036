// Scales and shifts folded into convolutions, against the eager run in float64.
#include "src/trace/passes/fold_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr std::int64_t kIn = 8, kOut = 12;

// A convolution of these weights with what follows it, in the type of its input.
struct Case {
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
void expect_folded(const Case& c, const Tensor& x) {
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
void for_convolutions(tn::Generator& random, const std::function<void(Case)>& check) {
  for (const std::int64_t groups : {1, 2, 4})
    for (const bool has_bias : {false, true}) {
      SCOPED_TRACE(testing::Message() << groups << " groups" << (has_bias ? ", bias" : ""));
      Case c;
      c.options = {.stride = 2, .padding = 1, .groups = groups};
      c.weight = random.normal({kOut, kIn / groups, 3, 3});
      if (has_bias) c.bias = random.normal({kOut});
      check(c);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(FoldScale, ScalesAndShiftsOfEachSignFoldIntoConvolutions) {
  tn::Generator random(tn::check::seed());
  for_convolutions(random, [&](Case c) {
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
  for_convolutions(random, [&](Case c) {
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

}  // namespace

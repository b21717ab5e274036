// Sums of convolutions of one image as one convolution, against the eager run in float64.
#include "src/trace/passes/sum_filters.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/trace/passes/clean.h"
#include "src/trace/passes/fold_scale.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::FilterSums;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

constexpr std::int64_t kChannels = 6;

using Function = std::function<Tensor(const Tensor&)>;

Graph folded(const Function& f, const Tensor& x, FilterSums sums = FilterSums::of_images) {
  const Graph traced =
      tn::trace([&](const Tensors& in) -> Tensors { return {f(in[0])}; }, {x.type()});
  const Graph after =
      tn::eliminate_common_and_dead(tn::fold_scale(tn::fold_constants(traced), tn::f32, sums));
  tn::verify(after, "sum_filters");
  return after;
}

// One convolution is left, and computes the same. Some 64 products a result are added twice, in
// different orders: their roundings, each of half a digit of a sum below eight times the largest
// result, are independent, so that they add up to eight times one of them, or 64 in all.
void expect_one(const Function& f, const tn::Dims& image = {2, kChannels, 7, 9}) {
  tn::Generator random(tn::check::seed());
  const Tensor x = random.normal(image);
  const Graph after = folded(f, x);
  EXPECT_EQ(count(after, tn::Op::conv2d), 1) << after;
  EXPECT_EQ(count(after, tn::Op::add) + count(after, tn::Op::multiply), 0) << after;
  const Graph before =
      tn::trace([&](const Tensors& in) -> Tensors { return {f(in[0])}; }, {x.type()});
  expect_same(before, after, {x}, 64);
}

// A convolution of given filters with a bias.
struct Conv {
  tn::Conv2dOptions options;
  Tensor filters, bias;
  Tensor operator()(const Tensor& x) const { return tn::conv2d(x, filters, bias, options); }
};

Conv conv_of(tn::Generator& random, const tn::Pair& kernel, const tn::Conv2dOptions& options,
             std::int64_t outputs = kChannels) {
  return {options, random.normal({outputs, kChannels / options.groups, kernel.h, kernel.w}),
          random.normal({outputs})};
}

Tensor numbers(tn::Generator& random) { return random.normal({kChannels, 1, 1}); }

}  // namespace

TEST(SumFilters, BranchesOfSeveralSizesBecomeOneConvolution) {
  tn::Generator random(tn::check::seed());
  for (const std::int64_t groups : {std::int64_t{1}, std::int64_t{2}, kChannels})
    for (const std::int64_t stride : {1, 2}) {
      SCOPED_TRACE(testing::Message() << groups << " groups, stride " << stride);
      const auto conv = [&](const tn::Pair& kernel, const tn::Pair& padding) {
        return conv_of(random, kernel, {.stride = stride, .padding = padding, .groups = groups},
                       12);
      };
      const Conv wide = conv({5, 3}, {2, 1}), narrow = conv({1, 3}, {0, 1}), pixel = conv(1, 0);
      expect_one([=](const Tensor& x) { return wide(x) + narrow(x); });
      expect_one([=](const Tensor& x) { return pixel(x) + narrow(x) + wide(x); });
      expect_one([=](const Tensor& x) { return pixel(x) + (wide(x) + narrow(x)); });
    }
}

TEST(SumFilters, ImagesAndTheirScalesAreBranches) {
  tn::Generator random(tn::check::seed());
  for (const std::int64_t groups : {std::int64_t{1}, std::int64_t{3}, kChannels})
    for (const std::int64_t dilation : {1, 2}) {
      SCOPED_TRACE(testing::Message() << groups << " groups, dilation " << dilation);
      const Conv conv =
          conv_of(random, 3, {.padding = dilation, .dilation = dilation, .groups = groups});
      const Tensor scale = numbers(random), shift = numbers(random), after = numbers(random);
      expect_one([=](const Tensor& x) { return conv(x) + x; });
      expect_one([=](const Tensor& x) { return x * scale + conv(x); });
      expect_one([=](const Tensor& x) { return conv(x) + (x * scale + shift); });
      // What follows the sum is folded into it, too, as the norm of RepViT's branches.
      expect_one([=](const Tensor& x) { return (conv(x) + x) * after + shift; });
    }
}

TEST(SumFilters, OtherSumsStay) {
  tn::Generator random(tn::check::seed());
  const Tensor x = random.normal({2, kChannels, 9, 9});
  const auto convolutions = [&](const Function& f, FilterSums sums = FilterSums::of_images) {
    const Graph after = folded(f, x, sums);
    return count(after, tn::Op::conv2d) * 10 + count(after, tn::Op::add);
  };
  const Conv wide = conv_of(random, 3, {.padding = 1}), pixel = conv_of(random, 1, {}),
             apart = conv_of(random, 3, {.padding = 2, .dilation = 2}),
             lines = conv_of(random, {1, 3}, {.padding = {0, 1}}),
             columns = conv_of(random, {3, 1}, {.padding = {1, 0}}),
             grouped = conv_of(random, 1, {.groups = 2});
  const Tensor scale = numbers(random);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return wide(x) + pixel(x); }), 10);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return wide(x) + pixel(x * scale); }), 21);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return wide(x) + grouped(x); }), 21);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return wide(x) + apart(x); }), 21);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return lines(x) + columns(x); }), 21);
  EXPECT_EQ(convolutions([&](const Tensor& x) { return tn::relu(wide(x)) + pixel(x); }), 21);
  // Something else reads the wide one.
  EXPECT_EQ(convolutions([&](const Tensor& x) {
              const Tensor y = wide(x);
              return tn::relu(y) * (y + pixel(x));
            }),
            21);
  // Filters that tf32 rounds take no images, those that are to be narrow no others.
  const auto of = [&](FilterSums sums) {
    return convolutions([&](const Tensor& x) { return wide(x) + pixel(x) + x; }, sums);
  };
  EXPECT_EQ(of(FilterSums::of_images), 10);
  EXPECT_EQ(of(FilterSums::of_filters), 11);
  EXPECT_EQ(of(FilterSums::none), 22);
}

// The family folds against the reference: reductions of values of which whole lines are folded.
#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

// Pieces of at most 256 lines are summed in float32 one after the other, and these in float64; a
// rounding error a line, of which the signs differ: twice the root of their number is plenty.
constexpr double kSum = 2 * 16 * 0x1p-23;

void check_folds(const tn::TensorFunction& f, const Tensors& inputs, double relative,
                 double scale) {
  expect_close(run_group("folds", f, inputs, nullptr), relative, scale);
}

Shape image() { return {1 + pick(3), 1 + pick(40), 1 + pick(40), 2 + pick(70)}; }

/// Of an image whose channels lie last: [N, C, H, W].
Tensor channels_first(const Tensor& x) { return x.transpose({0, 3, 1, 2}); }

TEST(Folds, MeansOfChannels) {
  for (int round = 0; round < 60; ++round) {
    Shape shape = image();
    shape[1] += 1;  // one pixel has nothing to fold
    const bool keeps = round % 2;
    check_folds(
        [&](const Tensors& in) -> Tensors {
          const Tensor x = channels_first(in[0]);
          return {round % 3 ? tn::mean(x, {2, 3}, keeps) : tn::sum(x, {2, 3}, keeps)};
        },
        {normal(shape, tn::f32, 0.5)}, kSum, round % 3 ? 1 : 40 * 40);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Folds, StatisticsOfGroups) {
  for (int round = 0; round < 60; ++round) {
    const std::int64_t groups = 2 + pick(8), each = 1 + pick(5), h = 2 + pick(40), w = 1 + pick(40);
    const std::int64_t batch = 1 + pick(2);
    check_folds(
        [&](const Tensors& in) -> Tensors {
          const Tensor x = channels_first(in[0]).reshape({batch, groups, each, h, w});
          const Tensor scale = tn::rsqrt(tn::var(x, {2, 3, 4}, true) + 1e-5);
          return {scale, tn::mean(x, {2, 3, 4}, true) * scale - 1.0};
        },
        {normal({batch, h, w, groups * each}, tn::f32, 3)}, kSum, 8);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Folds, AVarianceFarFromZero) {
  // The squares of numbers near 1000 have lost theirs.
  const Tensor x = normal({1, 33, 29, 24}) + 1000.0;
  check_folds(
      [](const Tensors& in) -> Tensors {
        return {tn::var(in[0].transpose({0, 3, 1, 2}), {2, 3}, false, 1)};
      },
      {x}, 1e-3, 0);  // the mean of a piece is off by an ulp of 1000, which counts squared
}

TEST(Folds, MaximaWithNaN) {
  Tensor x = normal({2, 17, 19, 21});
  x.mutable_data<float>()[21 * 5 + 3] = std::numeric_limits<float>::quiet_NaN();
  check_folds(
      [](const Tensors& in) -> Tensors {
        return {tn::max(in[0], {1, 2}), tn::mean(in[0], {1, 2})};
      },
      {x}, kSum, 1);
}

TEST(Folds, OuterAxesInAnyOrder) {
  for (int round = 0; round < 40; ++round) {
    const Shape shape{2 + pick(5), 2 + pick(9), 2 + pick(9), 2 + pick(40)};
    check_folds([&](const Tensors& in) -> Tensors { return {tn::mean(in[0], {round % 3})}; },
                {normal(shape)}, kSum, 1);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Folds, NotWhatRowsDoBetter) {
  const auto mean = [](std::int64_t axis) {
    return [=](const Tensors& in) -> Tensors { return {tn::mean(in[0], {axis})}; };
  };
  EXPECT_TRUE(accepts("folds", mean(0), {normal({50, 64})}));
  EXPECT_FALSE(accepts("folds", mean(1), {normal({50, 64})}));
  EXPECT_FALSE(accepts("folds", mean(0), {normal({50, 64}, tn::bf16)}));
  EXPECT_FALSE(accepts("folds",
                       [](const Tensors& in) -> Tensors { return {tn::softmax(in[0], 0)}; },
                       {normal({50, 64})}));
}

}  // namespace

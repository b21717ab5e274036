// The row family against the reference: reductions, softmax and layer_norm with what surrounds
// them.
#include <gtest/gtest.h>

#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

constexpr std::int64_t kLengths[] = {2, 3, 7, 15, 16, 17, 63, 65, 197, 257, 768, 1025, 5000};

// [..., length] of at most about 60000 elements.
Shape rows_of(std::int64_t length) {
  Shape shape;
  std::int64_t left = 60000 / length + 1;
  for (int rank = pick(3); rank > 0; --rank) {
    shape.push_back(1 + pick(static_cast<int>(std::min<std::int64_t>(left, 40))));
    left = left / shape.back() + 1;
  }
  shape.push_back(length);
  return shape;
}

tn::DType any_float() { return pick(3) ? tn::f32 : pick(2) ? tn::bf16 : tn::f16; }

// A sum of n terms of float rounding in 16 or more lanes, and a function of a few ulps.
constexpr double kFew = 40 * 0x1p-23;

void check_row(const tn::TensorFunction& f, const Tensors& inputs, double relative, double scale) {
  expect_close(run_group("row", f, inputs, pick(4) ? &random_engine() : nullptr), relative, scale);
}

TEST(Row, Softmax) {
  for (int round = 0; round < 120; ++round) {
    const Shape shape = rows_of(kLengths[round % 13]);
    const tn::DType dtype = any_float();
    check_row(
        [&](const Tensors& in) -> Tensors {
          return {round % 2 ? tn::softmax(in[0] * 0.5 + in[1], -1) : tn::log_softmax(in[0], -1)};
        },
        {normal(shape, dtype) * 5, normal({shape.back()}, dtype)}, kFew, round % 2 ? 0 : 1);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Row, SoftmaxOverAnyAxis) {
  for (int round = 0; round < 40; ++round) {
    const Shape shape{2 + pick(5), 2 + pick(40), 2 + pick(30)};
    const int axis = pick(3);
    check_row([&](const Tensors& in) -> Tensors { return {tn::softmax(in[0], axis)}; },
              {normal(shape)}, kFew, 0);
  }
}

TEST(Row, MaskedSoftmax) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 30; ++round) {
    const std::int64_t length = kLengths[round % 10];
    const Tensor keep = normal({3, 1, 1, length}) > 0.5;  // whole rows without a key among them
    check_row(
        [&](const Tensors& in) -> Tensors {
          return {tn::softmax(tn::where(in[1], in[0], -infinity), -1)};
        },
        {normal({3, 2, 5, length}), keep}, kFew, 0);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Row, SoftmaxOfSpecialValues) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t length : {2, 5, 16, 33, 200})
    for (const float planted : {nan, infinity, -infinity, 3e38f, -3e38f}) {
      Tensor x = normal({6, length});
      x(2, length / 2) = planted;
      x(3, tn::ellipsis) = planted;
      check_row([&](const Tensors& in) -> Tensors { return {tn::softmax(in[0], -1)}; }, {x}, kFew,
                0);
      check_row([&](const Tensors& in) -> Tensors { return {tn::log_softmax(in[0], -1)}; }, {x},
                kFew, 1);
      check_row(
          [&](const Tensors& in) -> Tensors {
            return {tn::max(in[0], -1), tn::min(in[0], -1)};
          },
          {x}, 0, 0);
    }
}

TEST(Row, LayerNorm) {
  for (int round = 0; round < 120; ++round) {
    const std::int64_t length = kLengths[round % 13];
    const Shape shape = rows_of(length);
    const tn::DType dtype = any_float();
    const int affine = pick(3);
    check_row(
        [&](const Tensors& in) -> Tensors {
          const Tensor residual = in[0] + in[1];
          const Tensor y = tn::layer_norm(residual, affine > 0 ? in[2] : Tensor(),
                                          affine > 1 ? in[3] : Tensor(), 1e-6);
          return {residual, y};
        },
        {normal(shape, dtype), normal(shape, dtype), normal({length}, dtype),
         normal({length}, dtype)},
        dtype == tn::f32 ? kFew : 4 * kFew, 4);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

// The mean is 10,000 times the deviation: a sum of squares would lose everything.
TEST(Row, LayerNormFarFromZero) {
  for (const std::int64_t length : {17, 768, 5000})
    for (const double mean : {1e4, -3e4}) {
      const GroupRun run = run_group(
          "row", [](const Tensors& in) -> Tensors { return {tn::layer_norm(in[0])}; },
          {normal({9, length}, tn::f32, mean)}, nullptr);
      expect_close(run, 1e-4, 1);
    }
}

TEST(Row, Reductions) {
  constexpr Tensor (*kReductions[])(const Tensor&, const tn::Axes&, bool) = {tn::sum, tn::mean,
                                                                             tn::max, tn::min};
  for (int round = 0; round < 150; ++round) {
    const Shape shape = rows_of(kLengths[round % 13]);
    const auto reduce = kReductions[pick(4)];
    const bool keep = pick(2);
    const tn::DType dtype = any_float();
    check_row([&](const Tensors& in) -> Tensors { return {reduce(tn::abs(in[0]), -1, keep)}; },
              {normal(shape, dtype)}, kFew, 0);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Row, ReductionsOverSeveralAxes) {
  for (int round = 0; round < 40; ++round) {
    const Shape shape{1 + pick(3), 2 + pick(30), 2 + pick(12), 2 + pick(12)};
    const tn::Axes axes = round % 3 == 0   ? tn::Axes({2, 3})
                          : round % 3 == 1 ? tn::Axes({1, 3})
                                           : tn::Axes();
    check_row([&](const Tensors& in) -> Tensors { return {tn::mean(tn::square(in[0]), axes)}; },
              {normal(shape)}, kFew, 0);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

// Several reductions in a row, each used by the elements and by numbers of a row.
TEST(Row, NormalisationByHand) {
  for (int round = 0; round < 60; ++round) {
    const Shape shape = rows_of(kLengths[1 + round % 12]);
    check_row(
        [](const Tensors& in) -> Tensors {
          const Tensor mean = tn::mean(in[0], -1, true), centred = in[0] - mean;
          const Tensor variance = tn::mean(tn::square(centred), -1, true);
          return {centred / tn::sqrt(variance + 1e-3) * 2.0, variance, tn::sqrt(mean * mean + 1.0)};
        },
        {normal(shape)}, kFew, 4);
    check_row(
        [](const Tensors& in) -> Tensors {
          return {(in[0] - tn::mean(in[0], -1).expand_dims(-1)) *
                  tn::rsqrt(tn::var(in[0], -1, false, 1).expand_dims(-1) + 1e-3)};
        },
        {normal(shape)}, kFew, 4);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Row, Declines) {
  const Tensor x = normal({6, 6}), v = normal({6});
  const auto declines = [](const tn::TensorFunction& f, const Tensors& in) {
    return !accepts("row", f, in);
  };
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {x}));
  // A number a row, broadcast along the columns.
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + tn::sum(in[0], -1)}; }, {x}));
  // Rows of one operator, columns of the other.
  EXPECT_TRUE(declines(
      [](const Tensors& in) -> Tensors { return {tn::softmax(tn::softmax(in[0], 0), 1)}; }, {x}));
  EXPECT_TRUE(declines(
      [](const Tensors& in) -> Tensors { return {tn::softmax(in[0] * (in[1] * 2.0), -1)}; },
      {x, v}));
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {tn::sum(in[0], -1)}; },
                       {x.astype(tn::i64)}));
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {tn::argmax(in[0], -1)}; }, {x}));
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {tn::softmax(in[0] + 1, -1)}; },
                       {normal({5, 1})}));
  // Rows of nothing, which have a sum.
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {tn::sum(in[0], 0)}; },
                       {tn::zeros({0, 5})}));
}

}  // namespace

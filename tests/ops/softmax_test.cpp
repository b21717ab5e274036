// softmax and log_softmax: against float64 loops, and at the edges of the number range.
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::expect_rounded;
using check::kInfinity;
using check::kNan;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

// softmax along the middle one of three axes.
Numbers reference(const Tensor& x, bool logarithm) {
  const std::int64_t outer = x.shape(0), extent = x.shape(1), inner = x.shape(2);
  Numbers values = x.to_vector<double>();
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      const auto at = [&](std::int64_t k) -> double& {
        return values[static_cast<std::size_t>((o * extent + k) * inner + i)];
      };
      double top = at(0), sum = 0;
      for (std::int64_t k = 1; k < extent; ++k) top = std::max(top, at(k));
      for (std::int64_t k = 0; k < extent; ++k) sum += std::exp(at(k) - top);
      for (std::int64_t k = 0; k < extent; ++k)
        at(k) = logarithm ? at(k) - top - std::log(sum) : std::exp(at(k) - top) / sum;
    }
  return values;
}

TEST(Softmax, AgreesWithLoopsInEveryLayoutTypeAndAxis) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const Shape& shape : {Shape{1, 10, 1}, Shape{4, 197, 1}, Shape{3, 5, 6}, Shape{1, 7, 8}}) {
      const Tensor x = random_tensor(shape, dtype) * 10;
      // In double the sum of n terms is off by n eps at most; a logarithm is below 100.
      const double weights = 200 * check::epsilon(f64), logarithms = 300 * check::epsilon(f64);
      for (const Tensor& view : layouts(x)) {
        EXPECT_EQ(softmax(view, 1).dtype(), dtype);
        expect_rounded(softmax(view, 1), reference(x, false), weights);
        expect_rounded(log_softmax(view, -2), reference(x, true), logarithms);
      }
      expect_rounded(softmax(x.swapaxes(1, 2), 2).swapaxes(1, 2), reference(x, false), weights);
    }
  }
}

TEST(Softmax, EdgesOfTheRange) {
  const auto row = [](std::initializer_list<double> values) { return array(values).astype(f32); };
  expect_near(softmax(row({1e4, 1e4 - 1, -1e4})),
              {1 / (1 + std::exp(-1)), 1 / (1 + std::exp(1)), 0}, check::epsilon(f32));
  expect_near(softmax(row({3e38, 3e38, 0})), {0.5, 0.5, 0}, 0);
  expect_near(softmax(row({3e38, -3e38})), {1, 0}, 0);
  expect_near(softmax(row({-kInfinity, 0, -kInfinity})), {0, 1, 0}, 0);
  expect_near(log_softmax(row({3e38, 3e38})), {-std::log(2), -std::log(2)}, check::epsilon(f32));
  expect_near(log_softmax(row({0, -kInfinity})), {0, -kInfinity}, 0);
  expect_near(log_softmax(row({0, -1e5})), {0, -1e5}, 0);
}

TEST(Softmax, UndefinedRowsAreNanAsInPyTorch) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = array({-kInfinity, -kInfinity, 0.0, 0.0, kInfinity, 1.0, kNan, 1.0})
                         .reshape({4, 2})
                         .astype(dtype);
    expect_near(softmax(x), {kNan, kNan, 0.5, 0.5, kNan, kNan, kNan, kNan}, 0);
    const Tensor logarithm = log_softmax(x);
    for (const int i : {0, 2, 3}) EXPECT_TRUE(std::isnan(logarithm.item(i, 0))) << i;
  }
}

TEST(Softmax, EmptyAndSingle) {
  EXPECT_EQ(softmax(zeros({3, 0})).shape(), (Shape{3, 0}));
  EXPECT_EQ(softmax(zeros({0, 3})).shape(), (Shape{0, 3}));
  expect_near(softmax(array({5.0})), {1}, 0);
  expect_near(log_softmax(array({5.0})), {0}, 0);
}

TEST(Softmax, Errors) {
  EXPECT_EQ(error_of([] {
              softmax(array({1, 2}));
            }),
            "softmax: got a tensor of i32, need a floating type: convert it with astype(f32)");
  EXPECT_EQ(error_of([] { log_softmax(ones({2}, boolean)); }),
            "log_softmax: got a tensor of bool, need a floating type: convert it with astype(f32)");
  EXPECT_EQ(error_of([] { softmax(zeros({2}), 1); }).substr(0, 9), "softmax: ");
  EXPECT_EQ(error_of([] { log_softmax(zeros({})); }).substr(0, 13), "log_softmax: ");
}

}  // namespace
}  // namespace tensor

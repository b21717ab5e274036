// The methods of Tensor are the functions of the same names.
#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

void expect_same(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.type(), want.type());
  EXPECT_TRUE(array_equal(got, want, true)) << got << " and " << want;
}

TEST(Methods, Reductions) {
  const Tensor x = check::random_tensor({3, 4, 5});
  struct Reduction {
    Tensor (Tensor::*method)(const Axes&, bool) const;
    Tensor (*function)(const Tensor&, const Axes&, bool);
  };
  for (const Reduction& r :
       {Reduction{&Tensor::sum, sum}, Reduction{&Tensor::mean, mean},
        Reduction{&Tensor::prod, prod}, Reduction{&Tensor::max, max}, Reduction{&Tensor::min, min},
        Reduction{&Tensor::any, any}, Reduction{&Tensor::all, all},
        Reduction{&Tensor::argmax, argmax}, Reduction{&Tensor::argmin, argmin}})
    for (const Axes& axes : {Axes(), Axes(0), Axes(-1), Axes{0, 2}})
      for (const bool keepdims : {false, true})
        expect_same((x.*r.method)(axes, keepdims), r.function(x, axes, keepdims));
  for (const double ddof : {0.0, 1.0}) {
    expect_same(x.var({0, 1}, true, ddof), var(x, {0, 1}, true, ddof));
    expect_same(x.std(-1, false, ddof), std(x, -1, false, ddof));
  }
  expect_same(x.sum(), sum(x));
  expect_same(x.max(none, true), max(x, {}, true));
}

TEST(Methods, Others) {
  const Tensor x = check::random_tensor({3, 1, 4}), v = array({3, 1, 2});
  expect_same(x.cumsum(0), cumsum(x, 0));
  expect_same(x.argsort(), argsort(x));
  expect_same(x.argsort(0), argsort(x, 0));
  expect_same(x.clip(-0.5, 0.5), clip(x, -0.5, 0.5));
  expect_same(x.round(), round(x));
  expect_same(v.dot(v), dot(v, v));
  expect_same(x.take(v, -1), take(x, v, -1));
  expect_same(x.repeat(2, 0), repeat(x, 2, 0));
  expect_same(x.squeeze(1), squeeze(x, 1));
  expect_same(x.squeeze(), squeeze(x));
  EXPECT_EQ(error_of([&] { x.sum(3); }), "sum: got the axis 3 for a tensor of rank 3");
  EXPECT_EQ(error_of([&] { x.squeeze(0); }),
            "squeeze: axis 0 of (3, 1, 4) has the extent 3, need 1");
}

// The first formula that everybody writes, against float64.
TEST(Methods, ColumnsAreStandardised) {
  const Tensor x = check::random_tensor({50, 3});
  const auto standardised = [](const Tensor& in) { return (in - in.mean(0)) / in.std(0); };
  const Tensor exact = standardised(x.to(f64));
  EXPECT_TRUE(allclose(exact.mean(0), 0, 0, 1e-12));
  EXPECT_TRUE(allclose(exact.std(0), 1, 1e-12));
  // Sums of 50 numbers lose up to 25 units in the last place where they are taken in f32, for the
  // mean and the variance of numbers of up to three deviations; six roundings come after them.
  const double bound = 100 * check::epsilon(f32);
  EXPECT_TRUE(allclose(standardised(x), exact, bound, bound));
  EXPECT_TRUE(allclose(compile(standardised)(x), exact, bound, bound));
}

}  // namespace
}  // namespace tensor

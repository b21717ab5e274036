// `using namespace tensor` beside the C library's and the standard library's functions of the same
// names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tensor/tensor.h"

using namespace tensor;

namespace {

TEST(UsingNamespace, FunctionsOfTensors) {
  const Tensor x = array({0.25, 4.0});
  EXPECT_EQ(sqrt(x).to_vector<double>(), (std::vector<double>{0.5, 2}));
  for (const Tensor& y :
       {exp(x),        log(x),      sin(x),          cos(x),        tanh(x),       erf(x),
        expm1(x),      log1p(x),    abs(x),          floor(x),      ceil(x),       round(x),
        power(x, 2),   max(x, 0),   min(x, 0),       maximum(x, 1), minimum(x, 1), clip(x, 0, 1),
        isnan(x),      isfinite(x), remainder(x, 2), copy(x),       sort(x),       equal(x, x),
        less(x, 1),    any(x),      all(x),          sum(x),        flip(x),       x.std(),
        tensor::std(x)})
    EXPECT_TRUE(y.defined());
  EXPECT_EQ(max(x).item(), 4);
  EXPECT_EQ(min(x).item(), 0.25);
}

TEST(UsingNamespace, FunctionsOfNumbers) {
  const double number = 6.25;
  EXPECT_EQ(sqrt(number), 2.5);
  EXPECT_EQ(floor(number), 6);
  EXPECT_EQ(ceil(number), 7);
  EXPECT_EQ(round(number), 6);
  EXPECT_EQ(exp(0.0), 1);
  EXPECT_EQ(log(1.0), 0);
  EXPECT_EQ(sin(0.0) + tanh(0.0) + erf(0.0), 0);
  EXPECT_EQ(abs(-3), 3);
  EXPECT_EQ(remainder(5.0, 2.0), 1);
  EXPECT_EQ(std::max(number, 7.0), 7);
  EXPECT_EQ(std::min({3, 1, 2}), 1);
  EXPECT_EQ(std::clamp(number, 0.0, 1.0), 1);
  EXPECT_EQ(std::abs(-0.5), 0.5);
}

}  // namespace

// Elementwise operators: the corners that the generated cases do not name, C++ operators, and every
// message.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::kInfinity;
using check::kNan;
using Numbers = std::vector<double>;

Numbers values(const Tensor& x) { return x.to_vector<double>(); }

TEST(Pointwise, IntegersWrapAround) {
  EXPECT_EQ(values(array<std::uint8_t>({200}) + array<std::uint8_t>({100})), Numbers{44});
  EXPECT_EQ(values(-array<std::int8_t>({-128})), Numbers{-128});
  EXPECT_EQ(values(abs(array<std::int8_t>({-128}))), Numbers{-128});
  const std::int64_t high = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((array({high}) + 1).item<std::int64_t>(0), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(values(square(array<std::int16_t>({300}))), Numbers{24464});
  EXPECT_EQ(values(power(array<std::uint8_t>({2}), 9)), Numbers{0});
}

// numpy.floor_divide and numpy.remainder.
TEST(Pointwise, DivisionOfIntegers) {
  const Tensor a = array({7, -7, 7, -7, 5, 0}), b = array({2, 2, -2, -2, 0, 0});
  EXPECT_EQ(values(floor_divide(a, b)), (Numbers{3, -4, -4, 3, 0, 0}));
  EXPECT_EQ(values(a % b), (Numbers{1, 1, -1, -1, 0, 0}));
  EXPECT_EQ(values(floor_divide(array<std::int8_t>({-128}), array<std::int8_t>({-1}))),
            Numbers{-128});
  EXPECT_EQ(values(array<std::int8_t>({-128}) % array<std::int8_t>({-1})), Numbers{0});
  EXPECT_EQ((a / b).dtype(), f64);
  EXPECT_EQ((a / b).item(4), kInfinity);
}

TEST(Pointwise, DivisionOfNumbersByZeroAndInfinity) {
  const Tensor a = array({1., -1., 0., kInfinity, 5., -5.}),
               b = array({0., 0., 0., 2., kInfinity, kInfinity});
  check::expect_near(floor_divide(a, b), {kInfinity, -kInfinity, kNan, kNan, 0, -1}, 0);
  check::expect_near(remainder(a, b), {kNan, kNan, kNan, kNan, 5, kInfinity}, 0);
  EXPECT_EQ(floor_divide(6.0, 0.1).item(), 59);  // 0.1 is a little more than a tenth
  EXPECT_TRUE(std::signbit(remainder(4.0, -2.0).item()));
}

TEST(Pointwise, NaNWinsInMaximumMinimumClip) {
  const Tensor x = array({kNan, 1., -2.});
  check::expect_near(maximum(x, 0.0), {kNan, 1, 0}, 0);
  check::expect_near(maximum(0.0, x), {kNan, 1, 0}, 0);
  check::expect_near(minimum(x, 0.0), {kNan, 0, -2}, 0);
  check::expect_near(minimum(0.0, x), {kNan, 0, -2}, 0);
  check::expect_near(clip(x, -1.0, 0.5), {kNan, 0.5, -1}, 0);
  check::expect_near(relu(x), {kNan, 1, 0}, 0);
  check::expect_near(sign(x), {kNan, 1, -1}, 0);
}

TEST(Pointwise, ComparisonsWithNaNAreFalse) {
  const Tensor x = array({kNan});
  for (const Tensor& result : {x == x, x<x, x <= x, x> x, x >= x})
    EXPECT_FALSE(result.item<bool>(0));
  EXPECT_TRUE((x != x).item<bool>(0));
}

TEST(Pointwise, RoundsHalvesToEven) {
  EXPECT_EQ(values(round(array({0.5, 1.5, 2.5, -0.5, -1.5}))), (Numbers{0, 2, 2, 0, -2}));
  EXPECT_EQ(round(array({3, 4})).dtype(), i32);
  EXPECT_TRUE(floor(array({3, 4})).defined());
}

TEST(Pointwise, GeluOfBothKinds) {
  EXPECT_NEAR(gelu(1.0).item(), 0.8413447460685429,
              1e-15);  // the normal distribution function at 1
  EXPECT_NEAR(gelu_tanh(1.0).item(), 0.8411919906082768, 1e-15);
}

TEST(Pointwise, CppOperators) {
  const Tensor a = array({6, 7}), b = array({2, 2});
  EXPECT_EQ(values(a + b), (Numbers{8, 9}));
  EXPECT_EQ(values(a - b), (Numbers{4, 5}));
  EXPECT_EQ(values(a * b), (Numbers{12, 14}));
  EXPECT_EQ(values(a / b), (Numbers{3, 3.5}));
  EXPECT_EQ(values(a % b), (Numbers{0, 1}));
  EXPECT_EQ(values(-a), (Numbers{-6, -7}));
  EXPECT_EQ(values(1 - a), (Numbers{-5, -6}));
  EXPECT_EQ(values(!(a == 6)), (Numbers{0, 1}));
  EXPECT_EQ(values((a > 6) & (b == 2)), (Numbers{0, 1}));
  EXPECT_EQ(values((a > 6) | (b != 2)), (Numbers{0, 1}));
  EXPECT_EQ(values(a >= 7), (Numbers{0, 1}));
  EXPECT_EQ(values(a <= 6), (Numbers{1, 0}));
  EXPECT_EQ(values(a < 7), (Numbers{1, 0}));
  Tensor c = a;
  c += 1;
  c -= b;
  c *= 3;
  EXPECT_EQ(values(c), (Numbers{15, 18}));
  c /= 2;
  EXPECT_EQ(values(c), (Numbers{7.5, 9}));
  EXPECT_EQ(values(a), (Numbers{6, 7}));
}

TEST(Pointwise, WhereTakesAnyConditionAndBroadcasts) {
  EXPECT_EQ(values(where(array({0, 2}), array({1, 2}), array({{5}, {6}}))), (Numbers{5, 2, 6, 2}));
  EXPECT_EQ(where(true, 1, 2).item<int>(), 1);
}

TEST(Pointwise, CopyIsContiguousAndItsOwn) {
  const Tensor x = arange(6).reshape({2, 3}).transpose();
  const Tensor y = copy(x);
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_FALSE(y.shares_storage(x));
  for (const Tensor& result : {x.astype(i64), floor(x), ceil(x), round(x), call("floor", {x})[0]}) {
    EXPECT_FALSE(result.shares_storage(x));
    EXPECT_TRUE(all(result == x).item<bool>());
  }
  EXPECT_FALSE(copy(arange(3)).shares_storage(arange(3)));
}

TEST(Pointwise, Messages) {
  EXPECT_EQ(error_of([] {
              zeros({2, 3}) + zeros({4});
            }),
            "broadcast: the shapes (2, 3) and (4,) do not broadcast: axes must be equal or 1, "
            "counted from the last");
  EXPECT_EQ(
      error_of([] { power(array({2}), array({-1})); }),
      "power: integers to negative integer powers are not allowed: convert to a floating type");
  EXPECT_EQ(error_of([] { sign(array({true})); }),
            "sign: is not defined on bool: convert it with astype, or use a logical operator");
  EXPECT_EQ(error_of([] {
              call("astype", {zeros({1})}, {{"dtype", "f7"}});
            }),
            "dtype: got \"f7\", need one of bool u8 i8 i16 i32 i64 f16 bf16 f32 f64");
}

}  // namespace
}  // namespace tensor

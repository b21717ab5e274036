// Comparing up to rounding, and whole tensors: isclose, allclose, array_equal.
#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of, check::kInfinity, check::kNan;
using Flags = std::vector<bool>;

TEST(IsClose, ToleranceIsAbsoluteAndRelativeToTheSecond) {
  // 2^-10 + 2^-3 |b|: exact in every type.
  const double rtol = 0.125, atol = 0x1p-10;
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor b = array({0.0, 8.0, -8.0, 8.0, 0.0}).astype(dtype);
    const Tensor a = array({0x1p-10, 9.0, -9.0, 7.0, 0x1p-9}).astype(dtype);
    EXPECT_EQ(isclose(a, b, rtol, atol).to_vector<bool>(), (Flags{true, true, true, true, false}))
        << dtype;
    EXPECT_EQ(isclose(a, b, rtol, 0).to_vector<bool>(), (Flags{false, true, true, true, false}));
    // Of 9 an eighth is more than 1, of 7 it is less.
    EXPECT_EQ(isclose(b, a, rtol, 0).to_vector<bool>(), (Flags{false, true, true, false, false}));
  }
}

TEST(IsClose, DefaultsAreNumPys) {
  EXPECT_EQ(isclose(array({1e10, 1e-7, 1e-8, 1.0}), array({1.00001e10, 1e-8, 1e-9, 1.0001}))
                .to_vector<bool>(),
            (Flags{true, false, true, false}));
  // The tolerance is not rounded to f16, where 4e-8 would be 2^-24.
  EXPECT_FALSE(isclose(full({}, 0x1p-24, f16), 0, 0, 4e-8));
}

TEST(IsClose, InfinitiesAndNaN) {
  const Tensor a = array({kInfinity, kInfinity, 1.0, kInfinity, kNan, kNan, 1.0});
  const Tensor b = array({kInfinity, -kInfinity, kInfinity, 1.0, kNan, 1.0, kNan});
  EXPECT_EQ(isclose(a, b).to_vector<bool>(),
            (Flags{true, false, false, false, false, false, false}));
  EXPECT_EQ(isclose(a, b, 1e-5, 1e-8, true).to_vector<bool>(),
            (Flags{true, false, false, false, true, false, false}));
}

TEST(IsClose, TypesAndShapes) {
  EXPECT_EQ(isclose(array({100000, 7}), array({100001, 8})).to_vector<bool>(),
            (Flags{true, false}));
  EXPECT_EQ(isclose(array({true, false}), 1).to_vector<bool>(), (Flags{true, false}));
  EXPECT_EQ(isclose(zeros({2, 1}), zeros({3})).shape(), (Shape{2, 3}));
  EXPECT_EQ(isclose(zeros({2, 1}), zeros({3})).dtype(), boolean);
  EXPECT_EQ(error_of([] { isclose(zeros({2}), zeros({3})); }),
            "isclose: the shapes (2,) and (3,) do not broadcast: axes must be equal or 1, counted "
            "from the last");
}

// In each layout, and in a compiled function.
TEST(IsClose, CompiledAndInEveryLayout) {
  const Tensor a = check::random_tensor({4, 5});
  const Tensor b = a + 1e-5 * check::random_tensor({4, 5}) * abs(a);
  const Flags want = isclose(a, b).to_vector<bool>();
  for (const Tensor& x : check::layouts(a))
    for (const Tensor& y : check::layouts(b)) EXPECT_EQ(isclose(x, y).to_vector<bool>(), want);
  const auto compiled = compile([](const Tensor& x, const Tensor& y) {
    return std::pair(isclose(x, y), all(isclose(x, y)));
  });
  const auto [close, every] = compiled(a, b);
  EXPECT_EQ(close.to_vector<bool>(), want);
  EXPECT_EQ(every.item<bool>(), allclose(a, b));
}

TEST(AllClose, IsOneAnswer) {
  const Tensor a = array({1.0, 2.0});
  static_assert(std::is_same_v<decltype(allclose(a, a)), bool>);
  EXPECT_TRUE(allclose(a, a + 1e-9));
  EXPECT_FALSE(allclose(a, a + 1e-3));
  EXPECT_TRUE(allclose(a, a + 1e-3, 0, 0.01));
  EXPECT_TRUE(allclose(a, a + 1e-3, 0.01, 0));
  EXPECT_TRUE(allclose(ones({3}), 1));
  EXPECT_TRUE(allclose(zeros({0}), zeros({0})));
  EXPECT_FALSE(allclose(array({kNan}), array({kNan})));
  EXPECT_TRUE(allclose(array({kNan}), array({kNan}), 1e-5, 1e-8, true));
}

TEST(ArrayEqual, ComparesShapesAndElements) {
  const Tensor a = array({1, 2, 3});
  EXPECT_TRUE(array_equal(a, array({1.f, 2.f, 3.f})));
  EXPECT_FALSE(array_equal(a, array({1, 2, 4})));
  EXPECT_FALSE(array_equal(a, a.reshape({1, 3})));
  EXPECT_FALSE(array_equal(a, array({1, 2})));  // which do not broadcast
  EXPECT_FALSE(array_equal(ones({3}), 1));      // which do
  EXPECT_TRUE(array_equal(a, a["::-1"]["::-1"]));
  EXPECT_TRUE(array_equal(zeros({0, 2}), zeros({0, 2})));
  EXPECT_FALSE(array_equal(zeros({0, 2}), zeros({2, 0})));
  const Tensor holed = array({1.0, kNan});
  EXPECT_FALSE(array_equal(holed, holed));
  EXPECT_TRUE(array_equal(holed, holed, true));
  EXPECT_FALSE(array_equal(holed, array({kNan, 1.0}), true));
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  EXPECT_FALSE(array_equal(array({large}), array({large - 1})));
}

}  // namespace
}  // namespace tensor

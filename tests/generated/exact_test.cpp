// The generated tests' own arithmetic: it must notice what it is there to notice.
#include "tests/generated/exact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tensor::generated {
namespace {

TEST(Exact, RoundsToNearestEven) {
  EXPECT_EQ(round_to(f16, 2049), 2048);
  EXPECT_EQ(round_to(f16, 2051), 2052);
  EXPECT_EQ(round_to(f16, 65519.99L), 65504);
  EXPECT_EQ(round_to(f16, 65520), std::numeric_limits<Exact>::infinity());
  EXPECT_EQ(round_to(f16, 0x1p-25L), 0);
  EXPECT_EQ(round_to(f16, 0x1.8p-25L), 0x1p-24L);
  EXPECT_EQ(round_to(bf16, 257), 256);
  EXPECT_EQ(round_to(bf16, 259), 260);
  EXPECT_EQ(round_to(u8, -1), 255);
  EXPECT_EQ(round_to(i8, 128), -128);
  EXPECT_EQ(round_to(i64, 0x1p63L), -0x1p63L);
  EXPECT_TRUE(std::signbit(round_to(f16, -0x1p-30L)));
}

TEST(Exact, AgreesWithTheMachine) {
  std::mt19937_64 random(seed());
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t bits = random();
    double wide;
    std::memcpy(&wide, &bits, sizeof wide);
    const float narrow = static_cast<float>(wide);
    if (std::isnan(wide)) continue;
    EXPECT_EQ(round_to(f32, wide), static_cast<Exact>(narrow)) << wide;
    std::byte where[8];
    write_bits(where, f64, wide);
    EXPECT_EQ(std::memcmp(where, &wide, sizeof wide), 0) << wide;
    write_bits(where, f32, narrow);
    EXPECT_EQ(std::memcmp(where, &narrow, sizeof narrow), 0) << narrow;
    EXPECT_EQ(read_bits(where, f32), static_cast<Exact>(narrow));
  }
}

TEST(Exact, DifferenceNotices) {
  Array got({2}, f32);
  got.values = {1, 0};
  Expected expected({2}, f32);
  expected.values = {1, 0};
  EXPECT_FALSE(difference(got, expected));
  got.values[0] = 1 + 0x1p-23L;
  EXPECT_TRUE(difference(got, expected));
  expected.ulps = 1;
  EXPECT_FALSE(difference(got, expected));
  got.values[0] = 1 + 0x1p-22L;
  EXPECT_TRUE(difference(got, expected));
  expected.slack = {0x1p-23L, 0};
  EXPECT_FALSE(difference(got, expected));
  got.values[0] = std::numeric_limits<Exact>::quiet_NaN();
  EXPECT_TRUE(difference(got, expected));
  got.values = {1, -0.0L};
  EXPECT_FALSE(difference(got, expected));
  expected.signed_zero = true;
  EXPECT_TRUE(difference(got, expected));
  EXPECT_TRUE(difference(Array({2}, f64), expected));
  EXPECT_TRUE(difference(Array({1, 2}, f32), expected));
}

TEST(Exact, EveryLayoutHoldsItsValuesAndGuardsItsFrame) {
  for (const cases::Layout layout : cases::kLayouts) {
    std::mt19937_64 random(seed());
    const Array values =
        make_values({{3, 4, 2}, i32, cases::Values::integers, -50, 50, layout}, random);
    Block block(values, layout);
    EXPECT_EQ(read(block.tensor()).values, values.values);
    EXPECT_TRUE(block.unchanged());
    auto* first = const_cast<std::int32_t*>(block.tensor().data<std::int32_t>());
    *first += 1;
    EXPECT_FALSE(block.unchanged());
    EXPECT_TRUE(block.frame_unchanged());
    *first -= 1;
    // Memory on both sides of the block belongs to nobody.
    std::int64_t low = 0, high = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t reach = (values.shape[axis] - 1) * block.tensor().strides()[axis];
      (reach < 0 ? low : high) += reach;
    }
    for (const std::int64_t outside : {low - 1, high + 1}) {
      first[outside] += 1;
      EXPECT_FALSE(block.frame_unchanged());
      first[outside] -= 1;
    }
    EXPECT_TRUE(block.frame_unchanged());
  }
}

}  // namespace
}  // namespace tensor::generated

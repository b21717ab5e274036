// Element types: the 16-bit floats over all their bit patterns, conversion, names, and promotion
// against NumPy's table.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "src/core/dispatch.h"
#include "tensor/json.h"
#include "tests/generated/exact.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using generated::Exact;

// The value of a binary format by its definition: (-1)^s * 2^(e - bias) * 1.f.
double by_definition(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
            bias = (1 << (exponent_bits - 1)) - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
  const double significand = (exponent ? 1 : 0) + std::ldexp(fraction, -fraction_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias);
}

TEST(Float16, EveryBitPatternIsReadAndWrittenBack) {
  for (int i = 0; i < 0x10000; ++i) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const double expected = by_definition(half.bits, 5, 10), got = static_cast<float>(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(Float16(got)))) << i;
    } else {
      ASSERT_EQ(got, expected) << i;
      ASSERT_EQ(Float16(static_cast<float>(half)).bits, i);
    }
  }
}

TEST(BFloat16, EveryBitPatternIsReadAndWrittenBack) {
  for (int i = 0; i < 0x10000; ++i) {
    BFloat16 half;
    half.bits = static_cast<std::uint16_t>(i);
    const double expected = by_definition(half.bits, 8, 7), got = static_cast<float>(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(BFloat16(got)))) << i;
    } else {
      ASSERT_EQ(got, expected) << i;
      ASSERT_EQ(BFloat16(static_cast<float>(half)).bits, i);
    }
  }
}

// Between every two neighbours: the middle goes to the even one, anything nearer to the nearer one.
template <class Half>
void expect_nearest_even(int largest_finite) {
  for (int i = 0; i < largest_finite; ++i) {
    Half low, high;
    low.bits = static_cast<std::uint16_t>(i), high.bits = static_cast<std::uint16_t>(i + 1);
    const double a = static_cast<float>(low), b = static_cast<float>(high), middle = (a + b) / 2;
    ASSERT_EQ(Half(middle).bits, i % 2 ? i + 1 : i) << middle;
    ASSERT_EQ(Half(std::nextafter(middle, a)).bits, i) << middle;
    ASSERT_EQ(Half(std::nextafter(middle, b)).bits, i + 1) << middle;
    ASSERT_EQ(Half(-std::nextafter(middle, b)).bits, (i + 1) | 0x8000) << middle;
    // The same from float, where the middle is exact too.
    ASSERT_EQ(Half(static_cast<float>(middle)).bits, i % 2 ? i + 1 : i) << middle;
  }
}

TEST(Float16, RoundsToNearestEven) { expect_nearest_even<Float16>(0x7bff); }
TEST(BFloat16, RoundsToNearestEven) { expect_nearest_even<BFloat16>(0x7f7f); }

TEST(Float16, OverflowsFromHalfAUnitPastTheLargest) {
  EXPECT_EQ(static_cast<float>(Float16(65519.9)), 65504);
  EXPECT_EQ(static_cast<float>(Float16(65520)), INFINITY);
  EXPECT_EQ(static_cast<float>(Float16(-1e300)), -INFINITY);
  EXPECT_EQ(static_cast<float>(BFloat16(1e300)), INFINITY);
  EXPECT_EQ(static_cast<float>(BFloat16(3.3962e38)), INFINITY);
  EXPECT_EQ(static_cast<float>(BFloat16(std::numeric_limits<std::int64_t>::max())), 0x1p63f);
}

template <class To, class From>
void expect_conversion(From value, Exact expected) {
  EXPECT_EQ(static_cast<Exact>(static_cast<Compute<To>>(convert<To>(value))), expected) << +value;
}

TEST(Convert, SaturatesTruncatesAndMakesNaNZero) {
  expect_conversion<std::int8_t>(127.9f, 127);
  expect_conversion<std::int8_t>(128.0f, 127);
  expect_conversion<std::int8_t>(-128.9f, -128);
  expect_conversion<std::int8_t>(-1e30f, -128);
  expect_conversion<std::uint8_t>(-0.9, 0);
  expect_conversion<std::uint8_t>(-5.0, 0);
  expect_conversion<std::uint8_t>(255.9, 255);
  expect_conversion<std::int32_t>(2147483647.0, 2147483647);
  expect_conversion<std::int32_t>(2147483648.0, 2147483647);
  expect_conversion<std::int64_t>(0x1p62, 0x1p62L);
  expect_conversion<std::int64_t>(0x1p63,
                                  static_cast<Exact>(std::numeric_limits<std::int64_t>::max()));
  expect_conversion<std::int64_t>(-0x1p63, -0x1p63L);
  expect_conversion<std::int64_t>(-INFINITY, -0x1p63L);
  expect_conversion<std::int32_t>(NAN, 0);
  expect_conversion<bool>(NAN, 1);
  expect_conversion<bool>(-0.0, 0);
  expect_conversion<std::uint8_t>(std::int32_t{-1}, 255);
  expect_conversion<std::int8_t>(std::int64_t{300}, 44);
}

TEST(DTypes, NamesAreReadBack) {
  for (const DType dtype : cases::kAllTypes) EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  EXPECT_EQ(parse_dtype("float32"), f32);
  EXPECT_EQ(parse_dtype("uint8"), u8);
  EXPECT_EQ(parse_dtype("bool_"), boolean);
  EXPECT_EQ(parse_dtype("bfloat16"), bf16);
  EXPECT_EQ(error_of([] { parse_dtype("float31"); }),
            "dtype: got \"float31\", need one of bool u8 i8 i16 i32 i64 f16 bf16 f32 f64");
}

TEST(DTypes, OfCppTypes) {
  static_assert(dtype_of<bool>() == boolean && dtype_of<std::uint8_t>() == u8 &&
                dtype_of<signed char>() == i8);
  static_assert(dtype_of<short>() == i16 && dtype_of<int>() == i32 && dtype_of<long>() == i64 &&
                dtype_of<long long>() == i64);
  static_assert(dtype_of<Float16>() == f16 && dtype_of<BFloat16>() == bf16 &&
                dtype_of<float>() == f32 && dtype_of<double>() == f64);
  for (const DType dtype : cases::kAllTypes)
    dispatch(dtype, [&]<class Tag>(Tag) {
      EXPECT_EQ(dtype_of<typename Tag::type>(), dtype);
      EXPECT_EQ(item_size(dtype), static_cast<std::int64_t>(sizeof(typename Tag::type)));
      EXPECT_EQ(is_floating(dtype), std::is_floating_point_v<Compute<typename Tag::type>>);
    });
}

TEST(DTypes, DispatchFloatingRefusesIntegers) {
  EXPECT_EQ(error_of([] { dispatch_floating(i32, "here", [](auto) {}); }),
            "here: got a tensor of i32, need a floating type: convert it with astype(f32)");
}

}  // namespace
}  // namespace tensor

#include "tensor/dtype.h"

#include <array>
#include <cmath>
#include <ostream>

#include "tensor/error.h"

namespace tensor {
namespace detail {

std::uint16_t half_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));  // NaN
  if (magnitude >= 0x477ff000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 puts its unit, 2^-24, at the last bit of the sum, which the
    // addition rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
  }
  const std::uint32_t rounded =
      magnitude + 0xfffu + ((magnitude >> 13) & 1u);  // nearest, ties to even
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

float float_from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | wide | (fraction << 13));
}

float round_to_odd(long double value) {
  const float nearest = static_cast<float>(value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (nearest == value || value != value || (bits & 1) != 0 || std::isinf(value)) return nearest;
  // The value lies between `nearest` and a neighbour, which is the odd one of the two.
  return std::bit_cast<float>(std::fabs(nearest) < std::fabs(value) ? bits + 1 : bits - 1);
}

}  // namespace detail

namespace {
constexpr std::array<std::string_view, 10> kNames = {"bool", "u8",  "i8",   "i16", "i32",
                                                     "i64",  "f16", "bf16", "f32", "f64"};
constexpr std::array<std::string_view, 10> kNumpyNames = {
    "bool_", "uint8",   "int8",     "int16",   "int32",
    "int64", "float16", "bfloat16", "float32", "float64"};
}  // namespace

std::string_view name(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

DType parse_dtype(std::string_view text) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (text == kNames[i] || text == kNumpyNames[i]) return static_cast<DType>(i);
  fail("dtype", "got \"", text, "\", need one of bool u8 i8 i16 i32 i64 f16 bf16 f32 f64");
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);  // now the kind of b is at least that of a
  if (a == boolean) return b;
  if (!is_floating(b)) return a == u8 && b == i8 ? i16 : b;
  if (is_floating(a)) return a == f16 && b == bf16 ? f32 : b;
  // An integer and a floating type: the smallest floating type that holds both exactly, f64 at
  // most.
  const DType needed = item_size(a) == 1 ? b : item_size(a) == 2 ? f32 : f64;
  return promote(needed, b);
}

}  // namespace tensor

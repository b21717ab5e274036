// Element types: the DType enumeration, the 16-bit floating types, and NumPy's promotion rules.
#pragma once

#include <bit>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string_view>
#include <type_traits>

#include "tensor/export.h"

namespace tensor {

/// The type of a tensor's elements.
enum class DType : std::uint8_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

inline constexpr DType boolean = DType::boolean;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i8 = DType::i8;
inline constexpr DType i16 = DType::i16;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;

namespace detail {
TENSOR_API std::uint16_t half_from_float(float value);
TENSOR_API float float_from_half(std::uint16_t bits);
/// A float to be rounded once more: where it is not exact its last bit is odd, so that it never
/// looks like a tie.
TENSOR_API float round_to_odd(long double value);

template <class T>
float narrowed(T value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else
    return round_to_odd(value);
}

constexpr std::uint16_t bfloat_from_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >>
                                    16);  // nearest, ties to even
}

/// A floating number as T: integers saturate, and NaN becomes 0.
template <class To, class From>
To saturated(From value) {
  if constexpr (std::is_integral_v<To>) {
    if (value != value) return To(0);
    // Both bounds are powers of two (minus one), exact as doubles or rounded up to one: compare
    // against 2^n.
    constexpr double kLow = static_cast<double>(std::numeric_limits<To>::min());
    constexpr double kAboveHigh = 2.0 * static_cast<double>(std::numeric_limits<To>::max() / 2 + 1);
    if (static_cast<double>(value) <= kLow) return std::numeric_limits<To>::min();
    if (static_cast<double>(value) >= kAboveHigh) return std::numeric_limits<To>::max();
  }
  return static_cast<To>(value);
}
}  // namespace detail

/// IEEE 754 binary16. Storage only: arithmetic happens in float.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Float16(T value)
      : bits(detail::half_from_float(detail::narrowed(value))) {}
  operator float() const { return detail::float_from_half(bits); }
};

/// The upper half of a binary32 (bfloat16). Storage only: arithmetic happens in float.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  template <class T>
  requires std::is_arithmetic_v<T> BFloat16(T value)
      : bits(detail::bfloat_from_float(detail::narrowed(value))) {}
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// The DType that holds elements of the C++ type T; a type without one does not compile.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, bool>)
    return boolean;
  else if constexpr (std::is_same_v<T, Float16>)
    return f16;
  else if constexpr (std::is_same_v<T, BFloat16>)
    return bf16;
  else if constexpr (std::is_same_v<T, float>)
    return f32;
  else if constexpr (std::is_same_v<T, double>)
    return f64;
  else if constexpr (std::is_same_v<T, std::uint8_t>)
    return u8;
  else {
    static_assert(std::is_integral_v<T> && std::is_signed_v<T>,
                  "tensor has no element type for this C++ type");
    if constexpr (sizeof(T) == 1)
      return i8;
    else if constexpr (sizeof(T) == 2)
      return i16;
    else if constexpr (sizeof(T) == 4)
      return i32;
    else
      return i64;
  }
}

/// Kinds in the order in which they promote.
enum class Kind : std::uint8_t { boolean, integer, floating };

constexpr Kind kind_of(DType dtype) {
  if (dtype == DType::boolean) return Kind::boolean;
  return dtype >= DType::f16 ? Kind::floating : Kind::integer;
}
constexpr bool is_floating(DType dtype) { return kind_of(dtype) == Kind::floating; }

/// Bytes of one element.
constexpr std::int64_t item_size(DType dtype) {
  constexpr std::int64_t kSizes[] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}

/// "bool", "u8", ..., "f64".
TENSOR_API std::string_view name(DType dtype);
/// The inverse of `name`; also takes NumPy's names ("float32", "uint8"). Throws UserError on any
/// other text.
TENSOR_API DType parse_dtype(std::string_view text);
TENSOR_API std::ostream& operator<<(std::ostream& out, DType dtype);

/// numpy.result_type of two arrays: i32 + f32 -> f64, u8 + i8 -> i16, f16 + i16 -> f32. bf16 counts
/// as a second 16-bit floating type: with f16 it gives f32.
TENSOR_API DType promote(DType a, DType b);

}  // namespace tensor

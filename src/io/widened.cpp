#include "src/io/widened.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/io/foreign.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers");

// A sign, four bits of exponent and three of mantissa; all bits set are NaN.
Float16 from_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
  return Float16(bits & 0x80 ? -value : value);
}

const std::array<Float16, 256>& e4m3_table() {
  static const std::array<Float16, 256> table = [] {
    std::array<Float16, 256> result;
    for (std::size_t i = 0; i < result.size(); ++i)
      result[i] = from_e4m3(static_cast<std::uint8_t>(i));
    return result;
  }();
  return table;
}

// The upper byte of a float16.
Float16 from_e5m2(std::uint8_t bits) { return std::bit_cast<Float16>(std::uint16_t(bits << 8)); }

template <class From, class To, class Convert>
Tensor each(std::span<const std::byte> bytes, const Shape& shape, const Convert& convert) {
  Tensor result = empty(shape, dtype_of<To>());
  To* out = result.mutable_data<To>();
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(From)) {
    From number;
    std::memcpy(&number, bytes.data() + i, sizeof number);
    *out++ = convert(number);
  }
  return result;
}

}  // namespace

std::string_view name(Narrow type) {
  constexpr std::string_view kNames[] = {"u16", "u32", "u64", "f8_e4m3", "f8_e5m2"};
  return kNames[static_cast<int>(type)];
}

std::int64_t item_size(Narrow type) {
  constexpr std::int64_t kSizes[] = {2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(type)];
}

DType widened_dtype(Narrow type) {
  constexpr DType kTypes[] = {i32, i64, i64, f16, f16};
  return kTypes[static_cast<int>(type)];
}

Tensor widened(Narrow type, std::span<const std::byte> bytes, const Shape& shape,
               const std::string& where) {
  switch (type) {
    case Narrow::u16:
      return each<std::uint16_t, std::int32_t>(bytes, shape, [](auto x) { return x; });
    case Narrow::u32:
      return each<std::uint32_t, std::int64_t>(bytes, shape, [](auto x) { return x; });
    case Narrow::u64:
      return each<std::uint64_t, std::int64_t>(bytes, shape, [&](std::uint64_t x) {
        if (x >> 63)
          refuse_member(where, "holds the number ", x,
                        ", need numbers below 2^63: convert it to float64 before saving");
        return static_cast<std::int64_t>(x);
      });
    case Narrow::f8_e4m3:
      return each<std::uint8_t, Float16>(bytes, shape, [](auto x) { return e4m3_table()[x]; });
    case Narrow::f8_e5m2:
      return each<std::uint8_t, Float16>(bytes, shape, from_e5m2);
  }
  internal_error(where, "a type that is none");
}

}  // namespace tensor

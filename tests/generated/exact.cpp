#include "tests/generated/exact.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace tensor::generated {

Index unravel(std::size_t flat, const Shape& shape) {
  Index index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const auto extent = static_cast<std::size_t>(shape[axis]);
    index[static_cast<std::size_t>(axis)] = static_cast<std::int64_t>(flat % extent);
    flat /= extent;
  }
  return index;
}

std::size_t ravel(const Index& index, const Shape& shape) {
  std::size_t flat = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    flat = flat * static_cast<std::size_t>(shape[axis]) +
           static_cast<std::size_t>(index[static_cast<std::size_t>(axis)]);
  return flat;
}

Exact Array::at(const Index& index) const {
  const std::size_t lead = index.size() - static_cast<std::size_t>(rank());
  std::size_t flat = 0;
  for (int axis = 0; axis < rank(); ++axis) {
    const auto i = static_cast<std::size_t>(index[static_cast<std::size_t>(axis) + lead]);
    flat = flat * static_cast<std::size_t>(shape[axis]) + (shape[axis] == 1 ? 0 : i);
  }
  return values[flat];
}

// ---- Element types.

namespace {

// Calls body(T{}) with the C++ type of an integer dtype.
template <class Body>
auto with_integer(DType dtype, Body body) {
  switch (dtype) {
    case DType::u8:
      return body(std::uint8_t{});
    case DType::i8:
      return body(std::int8_t{});
    case DType::i16:
      return body(std::int16_t{});
    case DType::i32:
      return body(std::int32_t{});
    default:
      return body(std::int64_t{});
  }
}

std::uint64_t significand_mask(const Precision& p) {
  return (std::uint64_t{1} << (p.digits - 1)) - 1;
}

// The fields of an IEEE 754 binary format with these digits.
std::uint64_t encode(const Precision& p, int exponent_bits, Exact value) {
  const std::uint64_t ones = (std::uint64_t{1} << exponent_bits) - 1;
  const std::uint64_t sign = std::uint64_t{std::signbit(value)} << (p.digits - 1 + exponent_bits);
  if (std::isnan(value))
    return sign | (ones << (p.digits - 1)) | (std::uint64_t{1} << (p.digits - 2));
  if (std::isinf(value)) return sign | (ones << (p.digits - 1));
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), p.min_exponent);
  const auto digits =
      static_cast<std::uint64_t>(std::ldexp(std::fabs(value), p.digits - 1 - exponent));
  const bool normal = digits > significand_mask(p);
  const auto biased = static_cast<std::uint64_t>(normal ? exponent - p.min_exponent + 1 : 0);
  return sign | (biased << (p.digits - 1)) | (digits & significand_mask(p));
}

Exact decode(const Precision& p, int exponent_bits, std::uint64_t bits) {
  const std::uint64_t ones = (std::uint64_t{1} << exponent_bits) - 1;
  const std::uint64_t digits = bits & significand_mask(p), biased = (bits >> (p.digits - 1)) & ones;
  const bool negative = (bits >> (p.digits - 1 + exponent_bits)) & 1;
  Exact value;
  if (biased == ones) {
    value =
        digits ? std::numeric_limits<Exact>::quiet_NaN() : std::numeric_limits<Exact>::infinity();
  } else {
    const std::uint64_t whole = biased > 0 ? digits + significand_mask(p) + 1 : digits;
    const int exponent = p.min_exponent + static_cast<int>(biased > 0 ? biased - 1 : 0);
    value = std::ldexp(static_cast<Exact>(whole), exponent - (p.digits - 1));
  }
  return negative ? -value : value;
}

int exponent_bits(DType dtype) { return dtype == f16 ? 5 : dtype == f64 ? 11 : 8; }

}  // namespace

Precision precision(DType floating) {
  switch (floating) {
    case DType::f16:
      return {11, -14, 15};
    case DType::bf16:
      return {8, -126, 127};
    case DType::f32:
      return {24, -126, 127};
    default:
      return {53, -1022, 1023};
  }
}

Exact unit_roundoff(DType floating) { return std::ldexp(Exact(1), -precision(floating).digits); }

Exact ulp(DType floating, Exact value) {
  const Precision p = precision(floating);
  const int exponent = value == 0 || !std::isfinite(value) ? p.min_exponent : std::ilogb(value);
  return std::ldexp(Exact(1),
                    std::clamp(exponent, p.min_exponent, p.max_exponent) - (p.digits - 1));
}

Exact round_to(DType dtype, Exact value) {
  if (dtype == boolean) return value != 0;
  if (!is_floating(dtype)) {
    const Exact rest = std::fmod(value, Exact(0x1p64L));
    const auto bits =
        rest < 0 ? 0 - static_cast<std::uint64_t>(-rest) : static_cast<std::uint64_t>(rest);
    return with_integer(dtype, [&]<class T>(T) { return Exact(static_cast<T>(bits)); });
  }
  if (value == 0 || !std::isfinite(value)) return value;
  const Exact unit = ulp(dtype, value);
  // A number past the type's range keeps the unit of the largest exponent, which is enough to see
  // that it rounds past.
  const Exact rounded = std::nearbyint(value / unit) * unit;
  if (std::fabs(rounded) > highest(dtype))
    return std::copysign(std::numeric_limits<Exact>::infinity(), value);
  return std::copysign(rounded, value);
}

Exact highest(DType dtype) {
  if (dtype == boolean) return 1;
  if (!is_floating(dtype))
    return with_integer(dtype, []<class T>(T) { return Exact(std::numeric_limits<T>::max()); });
  const Precision p = precision(dtype);
  return std::ldexp(Exact(2) - std::ldexp(Exact(1), 1 - p.digits), p.max_exponent);
}

Exact lowest(DType dtype) {
  if (dtype == boolean) return 0;
  if (!is_floating(dtype))
    return with_integer(dtype, []<class T>(T) { return Exact(std::numeric_limits<T>::min()); });
  return -highest(dtype);
}

void write_bits(std::byte* where, DType dtype, Exact value) {
  const auto bits = is_floating(dtype)
                        ? encode(precision(dtype), exponent_bits(dtype), value)
                        : static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
  std::memcpy(where, &bits,
              static_cast<std::size_t>(item_size(dtype)));  // little-endian, as every target is
}

Exact read_bits(const std::byte* where, DType dtype) {
  if (dtype == boolean) return std::to_integer<int>(*where);
  if (!is_floating(dtype)) {
    return with_integer(dtype, [&]<class T>(T value) {
      std::memcpy(&value, where, sizeof value);
      return Exact(value);
    });
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, where, static_cast<std::size_t>(item_size(dtype)));
  return decode(precision(dtype), exponent_bits(dtype), bits);
}

// ---- Arrays and tensors.

namespace {

const std::byte* first_byte(const Tensor& x) {
  switch (x.dtype()) {
    case DType::boolean:
      return reinterpret_cast<const std::byte*>(x.data<bool>());
    case DType::f16:
      return reinterpret_cast<const std::byte*>(x.data<Float16>());
    case DType::bf16:
      return reinterpret_cast<const std::byte*>(x.data<BFloat16>());
    case DType::f32:
      return reinterpret_cast<const std::byte*>(x.data<float>());
    case DType::f64:
      return reinterpret_cast<const std::byte*>(x.data<double>());
    default:
      return with_integer(
          x.dtype(), [&]<class T>(T) { return reinterpret_cast<const std::byte*>(x.data<T>()); });
  }
}

std::int64_t offset_of(const Index& index, const Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis)
    offset += index[axis] * strides[static_cast<int>(axis)];
  return offset;
}

}  // namespace

Array read(const Tensor& x) {
  Array result(x.shape(), x.dtype());
  for (std::size_t i = 0; i < result.size(); ++i)
    result.values[i] = read_bits(
        first_byte(x) + offset_of(unravel(i, x.shape()), x.strides()) * item_size(x.dtype()),
        x.dtype());
  return result;
}

namespace {

// The axis that a broadcast layout repeats: any, but the same for a shape every time.
int repeated_axis(const Shape& shape) {
  std::int64_t sum = 0;
  for (const auto extent : shape) sum += extent;
  return static_cast<int>(sum % shape.rank());
}

void repeat_along(Array& array, int axis) {
  for (std::size_t i = 0; i < array.size(); ++i) {
    Index index = unravel(i, array.shape);
    index[static_cast<std::size_t>(axis)] = 0;
    array.values[i] = array.values[ravel(index, array.shape)];
  }
}

std::vector<Exact> specials(DType dtype) {
  if (dtype == boolean) return {0, 1};
  const Exact low = lowest(dtype), high = highest(dtype);
  if (!is_floating(dtype))
    return {low, high, 0, 1, low < 0 ? Exact(-1) : Exact(2), low + 1, high - 1, 7, 2, 3};
  const Exact infinity = std::numeric_limits<Exact>::infinity(),
              nan = std::numeric_limits<Exact>::quiet_NaN();
  const Precision p = precision(dtype);
  const Exact tiny =
      std::ldexp(Exact(1), p.min_exponent - (p.digits - 1));  // the smallest subnormal number
  const Exact small = std::ldexp(Exact(1), p.min_exponent);   // the smallest normal number
  return {0,      -0.0L, 1,   -1,   infinity, -infinity, nan,  tiny,  -tiny, small,
          -small, high,  low, 0.5L, -0.5L,    1.5L,      2.5L, -2.5L, 3};
}

}  // namespace

Array make_values(const cases::Input& input, std::mt19937_64& random) {
  Array result(input.shape, input.dtype);
  const auto within = [&](double bound) {
    return std::clamp<Exact>(bound, lowest(input.dtype), highest(input.dtype));
  };
  const Exact low = within(input.low), high = within(input.high);
  std::uniform_int_distribution<std::int64_t> whole(static_cast<std::int64_t>(std::ceil(low)),
                                                    static_cast<std::int64_t>(std::floor(high)));
  std::uniform_real_distribution<double> real(static_cast<double>(low), static_cast<double>(high));
  const bool round_numbers = !is_floating(input.dtype) || input.values == cases::Values::integers;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (input.values == cases::Values::distinct)
      result.values[i] = low + static_cast<Exact>(i);
    else if (input.values == cases::Values::mask)
      result.values[i] = i % static_cast<std::size_t>(input.shape.back()) > 0 && random() % 3 == 0
                             ? -std::numeric_limits<Exact>::infinity()
                             : 0;
    else
      result.values[i] = round_numbers ? Exact(whole(random)) : round_to(input.dtype, real(random));
  }
  if (input.values == cases::Values::distinct)
    std::shuffle(result.values.begin(), result.values.end(), random);
  if (input.values == cases::Values::specials) {
    const std::vector<Exact> list = specials(input.dtype);
    // From a random start, so that two inputs of a binary operator meet in other pairs on other
    // runs.
    for (std::size_t i = 0, start = random(); i < result.size() && i < 3 * list.size(); ++i)
      result.values[i] = list[(start % list.size() + i * (1 + start % 3)) % list.size()];
  }
  if (input.layout == cases::Layout::broadcast && result.rank() > 0)
    repeat_along(result, repeated_axis(result.shape));
  return result;
}

namespace {

Strides row_major_strides(const Shape& shape) {
  Strides strides = Strides::filled(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * std::max<std::int64_t>(1, shape[axis + 1]);
  return strides;
}

struct Placement {
  Strides strides;
  std::int64_t first = 0;   // of the first element, in elements from the lowest address used
  std::int64_t extent = 1;  // elements from the lowest to past the highest address
};

Placement placement(const Shape& shape, cases::Layout layout) {
  Placement result{row_major_strides(shape)};
  const int rank = shape.rank();
  if (layout == cases::Layout::transposed) {
    std::int64_t step = 1;
    for (int axis = 0; axis < rank; ++axis) {
      result.strides[axis] = step;
      step *= std::max<std::int64_t>(1, shape[axis]);
    }
  } else if (layout == cases::Layout::sliced) {
    Shape wide = shape;
    for (auto& extent : wide) extent = 2 * extent + 1;
    result.strides = row_major_strides(wide);
    for (auto& stride : result.strides) stride *= 2;
  } else if (layout == cases::Layout::negative) {
    for (int axis = rank - 1; axis >= 0; axis -= 2) {
      result.first += (std::max<std::int64_t>(1, shape[axis]) - 1) * result.strides[axis];
      result.strides[axis] = -result.strides[axis];
    }
  } else if (layout == cases::Layout::broadcast && rank > 0) {
    Shape narrow = shape;
    narrow[repeated_axis(shape)] = 1;
    result.strides = row_major_strides(narrow);
    result.strides[repeated_axis(shape)] = 0;
  }
  for (int axis = 0; axis < rank; ++axis)
    result.extent += std::max<std::int64_t>(0, shape[axis] - 1) * std::abs(result.strides[axis]);
  return result;
}

constexpr std::int64_t kFrame = 16;  // elements before and after
constexpr std::byte kCanary{0xCD};

}  // namespace

Block::Block(const Array& array, cases::Layout layout) {
  const Placement place = placement(array.shape, layout);
  const std::int64_t size = item_size(array.dtype);
  memory_ = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>((place.extent + 2 * kFrame) * size), kCanary);
  std::byte* first = memory_->data() + (kFrame + place.first) * size;
  for (std::size_t i = 0; i < array.size(); ++i)
    write_bits(first + offset_of(unravel(i, array.shape), place.strides) * size, array.dtype,
               array.values[i]);
  before_ = *memory_;
  tensor_ =
      from_memory(static_cast<void*>(first), array.shape, array.dtype, memory_, place.strides);
}

bool Block::frame_unchanged() const {
  std::vector<std::byte> now = *memory_;
  const std::int64_t size = item_size(tensor_.dtype());
  const std::int64_t first = first_byte(tensor_) - memory_->data();
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor_.size()); ++i) {
    const auto at = static_cast<std::size_t>(
        first + offset_of(unravel(i, tensor_.shape()), tensor_.strides()) * size);
    std::copy_n(before_.begin() + static_cast<std::ptrdiff_t>(at), size,
                now.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return now == before_;
}

// ---- Comparison.

namespace {

bool acceptable(DType dtype, Exact got, Exact expected, Exact tolerance, bool signed_zero) {
  if (std::isnan(expected)) return std::isnan(got);
  const Exact rounded = round_to(dtype, expected);
  // long double has rounded once already: a double next to a tie may have fallen to the other side.
  if (dtype == f64 && std::isfinite(expected))
    tolerance = std::max(tolerance, 0.501L * ulp(f64, expected));
  if (got == rounded)
    return !(signed_zero && rounded == 0) || std::signbit(got) == std::signbit(expected);
  if (tolerance == 0 || std::isnan(got) || std::isinf(expected)) return false;
  // An overflow to infinity counts as the number after the largest one.
  if (std::isinf(got))
    got = std::copysign(std::ldexp(Exact(1), precision(dtype).max_exponent + 1), got);
  return std::fabs(got - expected) <= tolerance;
}

}  // namespace

std::optional<std::string> difference(const Array& got, const Expected& expected) {
  std::ostringstream text;
  text.precision(21);
  if (!(got.shape == expected.shape) || got.dtype != expected.dtype) {
    text << "got " << TensorType{got.shape, got.dtype} << ", expected "
         << TensorType{expected.shape, expected.dtype};
    return text.str();
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const Exact value = expected.values[i];
    Exact tolerance = expected.slack.empty() ? 0 : expected.slack[i];
    if (expected.ulps > 0) tolerance += expected.ulps * ulp(got.dtype, value);
    if (acceptable(got.dtype, got.values[i], value, tolerance, expected.signed_zero)) continue;
    text << "element " << Dims(unravel(i, got.shape)) << " of " << TensorType{got.shape, got.dtype}
         << " is " << got.values[i] << ", expected " << value << ", tolerance " << tolerance;
    return text.str();
  }
  return std::nullopt;
}

}  // namespace tensor::generated

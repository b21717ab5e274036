#include "src/core/decimal.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "tensor/dtype.h"

namespace tensor {
namespace {

// What std::to_chars writes; 400 characters hold every double with a few digits behind the point.
template <class... Format>
std::string written(Format... value_and_format) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, value_and_format...).ptr;
  return std::string(text, end);
}

// Reads "-1.25e-07".
Decimal parse(const std::string& text) {
  Decimal result;
  result.negative = text.front() == '-';
  const std::size_t e = text.find('e');
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') result.digits += c;
  result.exponent = std::stoi(text.substr(e + 1));
  return result;
}

float parsed_float(const std::string& text) {
  float value = std::numeric_limits<float>::infinity();  // what is beyond them stays so
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

Decimal rounded_decimal(double x, int count) {
  return parse(written(x, std::chars_format::scientific, count));
}

std::string rounded_text(double x, int count) {
  return written(x, std::chars_format::fixed, count);
}

// The 16-bit types have no std::to_chars: more and more digits until they lead back to the number.
// Below a power of two, numbers lie twice as dense as above it: there the nearest decimal may lead
// to the number below while the next one, further from zero, leads back.
template <class T>
Decimal shortest_decimal(T x) {
  const auto value = static_cast<double>(x);
  for (int count = 0;; ++count) {
    const int exponent = rounded_decimal(value, count).exponent;
    const double half_step = std::copysign(0.5 * std::pow(10.0, exponent - count), value);
    for (const double near : {value, value + half_step}) {
      const std::string text = written(near, std::chars_format::scientific, count);
      if (T(parsed_float(text)).bits == x.bits) return parse(text);
    }
  }
}
template <>
Decimal shortest_decimal(float x) {
  return parse(written(x, std::chars_format::scientific));
}
template <>
Decimal shortest_decimal(double x) {
  return parse(written(x, std::chars_format::scientific));
}
template Decimal shortest_decimal(Float16 x);
template Decimal shortest_decimal(BFloat16 x);

}  // namespace tensor

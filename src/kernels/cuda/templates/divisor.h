// Division by numbers that are known only when a kernel runs. Plain C++ for the GPU and the host
// alike.
#pragma once

namespace tensor::device {

/// A positive number that others from 0 to 2^31 - 1 are divided by: their product with `magic`,
/// which is 2^(31 + shift) / value rounded up, is too large by less than 2^(31 + shift) / value,
/// since 2^shift is at least `value` (Granlund and Montgomery, "Division by invariant integers
/// using multiplication", 1994).
struct Divisor {
  unsigned magic, shift;
  int value;

  static constexpr Divisor of(int value) {
    unsigned shift = 0;
    while ((1ull << shift) < static_cast<unsigned long long>(value)) ++shift;
    const auto divisor = static_cast<unsigned long long>(value);
    return {static_cast<unsigned>(((1ull << (31 + shift)) + divisor - 1) / divisor), shift, value};
  }
  constexpr operator int() const { return value; }
};

inline constexpr unsigned operator/(unsigned x, const Divisor& d) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x + x) * d.magic >> 32) >> d.shift;
}
inline constexpr unsigned operator%(unsigned x, const Divisor& d) {
  return x - x / d * static_cast<unsigned>(d.value);
}
inline constexpr int operator/(int x, const Divisor& d) {
  return static_cast<int>(static_cast<unsigned>(x) / d);
}
inline constexpr int operator%(int x, const Divisor& d) { return x - x / d * d.value; }

}  // namespace tensor::device

// Functions of one element that the standard library lacks.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "tensor/error.h"

namespace tensor::scalar {

// Integer arithmetic wraps around as NumPy's does, without the undefined behaviour of signed
// overflow.
template <class T, class F>
T wrap(T a, T b, F f) {
  if constexpr (std::is_same_v<T, bool>)
    return f(a, b) != 0;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else
    return f(a, b);
}

template <class T>
T negated(T x) {
  return wrap(T(0), x, [](auto, auto y) { return -y; });
}

template <class T>
T magnitude(T x) {
  if constexpr (std::is_floating_point_v<T>)
    return std::fabs(x);
  else if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>)
    return x;
  else
    return x < 0 ? negated(x) : x;
}

template <class T>
T floor_div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return wrap(T(0), a, [](auto x, auto y) { return x - y; });
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - ((a % b != 0) && ((a < 0) != (b < 0))));
  } else {
    // numpy.floor_divide: from the remainder, so that a == q * b + r holds with the remainder of
    // the same sign as b.
    if (b == 0) return a / b;
    T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T(0), a / b);
    const T floored = std::floor(quotient);
    return quotient - floored > T(0.5) ? floored + 1 : floored;
  }
}

template <class T>
T modulo(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    const T rest = static_cast<T>(a % b);
    return rest != 0 && ((rest < 0) != (b < 0)) ? static_cast<T>(rest + b) : rest;
  } else {
    T rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(T(0), b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
  }
}

/// The rest of a division that rounds towards 0, with the sign of a.
template <class T>
T truncated_rest(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}

template <class T>
T inverted(T x) {
  if constexpr (std::is_same_v<T, bool>)
    return !x;
  else
    return static_cast<T>(~x);
}

// As NumPy shifts: by a negative number or by all bits, every bit leaves.
template <class T>
T shifted_left(T a, T b) {
  const auto by = static_cast<std::uint64_t>(b);
  return by < 8 * sizeof(T) ? static_cast<T>(static_cast<std::uint64_t>(a) << by) : T(0);
}
template <class T>
T shifted_right(T a, T b) {
  const auto by = static_cast<std::uint64_t>(b);
  if (by < 8 * sizeof(T)) return static_cast<T>(a >> by);
  if constexpr (std::is_signed_v<T>)
    if (a < 0) return T(-1);
  return T(0);
}

template <class T>
T raised(T base, T exponent) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t result = 1, factor = static_cast<std::uint64_t>(base);
    if constexpr (std::is_signed_v<T>)
      if (exponent < 0)
        fail("power",
             "integers to negative integer powers are not allowed: convert to a floating type");
    for (auto left = static_cast<std::uint64_t>(exponent); left > 0; left >>= 1, factor *= factor)
      if (left & 1) result *= factor;
    return static_cast<T>(result);
  } else {
    return std::pow(base, exponent);
  }
}

template <class T>
T greater_or_nan(T a, T b) {
  return a >= b || a != a ? a : b;
}
template <class T>
T less_or_nan(T a, T b) {
  return a <= b || a != a ? a : b;
}

template <class T>
T sign_of(T x) {
  return x != x ? x : T((x > T(0)) - (x < T(0)));
}

template <class T>
T logistic(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <class T>
T gelu_by_erf(T x) {
  return x / 2 * (1 + std::erf(x * T(std::numbers::sqrt2 / 2)));
}

template <class T>
T relu6(T x) {
  return less_or_nan(greater_or_nan(x, T(0)), T(6));
}

template <class T>
T gelu_by_tanh(T x) {
  const T inner = T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (T(1) + std::tanh(inner));
}

}  // namespace tensor::scalar

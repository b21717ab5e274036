// Elementwise arithmetic as src/ops/pointwise.cpp defines it, and the elements of tensors in
// memory. Plain C++ for the GPU and the host alike.
//
// Elements are calculated with in Compute<T>: float for the 16-bit floats, T itself otherwise.
#pragma once

#include "divisor.h"
#include "ptx.h"

namespace tensor::device {

using i64 = long long;

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;
template <class T>
inline constexpr bool kFloats = kSame<T, float> || kSame<T, double>;
template <class T>
inline constexpr bool kSigned =
    kSame<T, signed char> || kSame<T, short> || kSame<T, int> || kSame<T, long long>;

// ---- Elements in memory.

template <class T>
inline T value_of(T x) {
  return x;
}
inline float value_of(Half x) { return float(x); }
inline float value_of(Bfloat16 x) { return float(x); }

template <class T>
using Compute = decltype(value_of(T{}));

/// What products of such factors are added up in: those of i8 exactly.
template <class T>
inline constexpr bool kIsBytes = kSame<T, signed char>;
template <bool kIsExact>
struct Sums {
  using Type = float;
};
template <>
struct Sums<true> {
  using Type = int;
};
template <class T>
using SumOf = typename Sums<kIsBytes<T>>::Type;

/// A number as it is stored: rounded to nearest, ties to even.
template <class T>
inline T stored(Compute<T> x) {
  if constexpr (kSame<T, Half> || kSame<T, Bfloat16>)
    return T{static_cast<u16>(T::pair(x, 0.0f))};
  else
    return x;
}

/// Neighbours in memory, moved in one transaction of at most 16 bytes.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T items[kCount];
};

template <int kCount, class T>
inline void load_pack(Compute<T> (&to)[kCount], const T* from) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = value_of(pack.items[i]);
}

template <int kCount, class T>
inline void store_pack(T* to, const Compute<T> (&from)[kCount]) {
  if constexpr ((kSame<T, Half> || kSame<T, Bfloat16>)&&kCount % 2 == 0) {
    Pack<u32, kCount / 2> pack;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) pack.items[i] = T::pair(from[2 * i], from[2 * i + 1]);
    *reinterpret_cast<Pack<u32, kCount / 2>*>(to) = pack;
  } else {
    Pack<T, kCount> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.items[i] = stored<T>(from[i]);
    *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
  }
}

/// One by one, `stride` elements apart.
template <int kCount, class T>
inline void load_apart(Compute<T> (&to)[kCount], const T* from, i64 stride) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = value_of(from[i * stride]);
}
template <int kCount, class T>
inline void store_apart(T* to, const Compute<T> (&from)[kCount], i64 stride) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i * stride] = stored<T>(from[i]);
}

// ---- Conversions: to bool tests against zero, to an integer saturates, NaN becomes 0.

template <class To>
struct Limits {
  static constexpr int kBits = 8 * sizeof(To) - (kSigned<To> ? 1 : 0);
  static constexpr double kAbove = kBits == 63 ? 0x1p63 : double(1ull << kBits % 63);
  static constexpr double kLowest = kSigned<To> ? -kAbove : 0;
  static constexpr To kMost = static_cast<To>(kBits == 63 ? ~0ull >> 1 : (1ull << kBits % 63) - 1);
  static constexpr To kLeast = kSigned<To> ? static_cast<To>(-kMost - 1) : To(0);
};

template <class To, class From>
inline To convert(From x) {
  if constexpr (kSame<To, bool>) {
    return x != From(0);
  } else if constexpr (kFloats<From> && !kFloats<To>) {
    if (!(x == x)) return To(0);
    // Both bounds are powers of two, which either type holds.
    if (x <= From(Limits<To>::kLowest)) return Limits<To>::kLeast;
    if (x >= From(Limits<To>::kAbove)) return Limits<To>::kMost;
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// ---- Functions of floats by name for both types.

inline constexpr float kInfinity = __builtin_bit_cast(float, 0x7f800000u);
inline constexpr float kNan = __builtin_bit_cast(float, 0x7fc00000u);

inline float exponential(float x) { return expf(x); }
inline double exponential(double x) { return exp(x); }
inline float exponential_less_1(float x) { return expm1f(x); }
inline double exponential_less_1(double x) { return expm1(x); }
inline float logarithm(float x) { return logf(x); }
inline double logarithm(double x) { return log(x); }
inline float logarithm_of_1_plus(float x) { return log1pf(x); }
inline double logarithm_of_1_plus(double x) { return log1p(x); }
inline float sine(float x) { return sinf(x); }
inline double sine(double x) { return sin(x); }
inline float cosine(float x) { return cosf(x); }
inline double cosine(double x) { return cos(x); }
inline float hyperbolic_tangent(float x) { return tanhf(x); }
inline double hyperbolic_tangent(double x) { return tanh(x); }
inline float error_function(float x) { return erff(x); }
inline double error_function(double x) { return erf(x); }
inline float square_root(float x) { return sqrtf(x); }
inline double square_root(double x) { return sqrt(x); }
inline float power_of(float x, float y) { return powf(x, y); }
inline double power_of(double x, double y) { return pow(x, y); }
inline float truncated_rest(float x, float y) { return fmodf(x, y); }
inline double truncated_rest(double x, double y) { return fmod(x, y); }
inline float with_sign_of(float x, float y) { return copysignf(x, y); }
inline double with_sign_of(double x, double y) { return copysign(x, y); }
inline float round_down(float x) { return floorf(x); }
inline double round_down(double x) { return floor(x); }
inline float round_up(float x) { return ceilf(x); }
inline double round_up(double x) { return ceil(x); }
inline float round_to_even(float x) { return rintf(x); }
inline double round_to_even(double x) { return rint(x); }
inline float magnitude(float x) { return fabsf(x); }
inline double magnitude(double x) { return fabs(x); }

/// 1 / x; of floats within 1 ulp, and 0 where that is subnormal.
inline float inverse(float x) { return reciprocal_approximate(x); }
inline double inverse(double x) { return 1 / x; }

template <class T>
inline T reciprocal_square_root(T x) {
  return T(1) / square_root(x);
}
template <class T>
inline T reciprocal(T x) {
  return T(1) / x;
}
template <class T>
inline T sigmoid(T x) {
  return inverse(T(1) + exponential(-x));
}
template <class T>
inline T silu(T x) {
  return x * sigmoid(x);
}

/// What gelu lacks of relu is z times the normal distribution at -z, z = |x|, whose logarithm is
/// nearly a polynomial: fitted to 0 <= z <= 6, so that the result is within 9.1e-8 |x|. From 10 on
/// less than 1e-13 is lacking.
inline float gelu(float x) {
  const float z = fminf(fabsf(x), 10.0f);
  float log2 = 8.44919668e-06f;
  log2 = log2 * z - 5.36978951e-05f;
  log2 = log2 * z - 4.22014331e-04f;
  log2 = log2 * z + 7.39071239e-03f;
  log2 = log2 * z - 5.26924767e-02f;
  log2 = log2 * z - 4.5915252e-01f;
  log2 = log2 * z - 1.15111113f;
  log2 = log2 * z - 0.999999881f;
  return 0.5f * x + 0.5f * fabsf(x) - z * exp2_approximate(log2);
}
inline double gelu(double x) { return x / 2 * (1 + erf(x * 0.70710678118654752)); }

/// (1 + tanh(u)) / 2 is the sigmoid of 2 u.
template <class T>
inline T gelu_tanh(T x) {
  return x * sigmoid(T(1.5957691216057308) * (x + T(0.044715) * x * x * x));
}

// ---- Functions of any numbers. Integers wrap around.

/// f of integers in 64 bits without a sign, where overflow is defined.
template <class T, class F>
inline T wrapped(T a, T b, F f) {
  if constexpr (kSame<T, bool>)
    return f(int{a}, int{b}) != 0;
  else if constexpr (kFloats<T>)
    return f(a, b);
  else if constexpr (sizeof(T) == 8)
    return static_cast<T>(f(static_cast<u64>(a), static_cast<u64>(b)));
  else
    return static_cast<T>(f(static_cast<u32>(a), static_cast<u32>(b)));
}
template <class T>
inline T plus(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x + y; });
}
template <class T>
inline T minus(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x - y; });
}
template <class T>
inline T times(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x * y; });
}
template <class T>
inline T negative(T x) {
  if constexpr (kFloats<T>)
    return -x;
  else
    return minus(T(0), x);
}
template <class T>
inline bool is_below_0(T x) {
  if constexpr (kFloats<T> || kSigned<T>)
    return x < T(0);
  else
    return false;
}
template <class T>
inline T absolute(T x) {
  if constexpr (kFloats<T>)
    return magnitude(x);
  else
    return is_below_0(x) ? negative(x) : x;
}
template <class T>
inline T sign(T x) {
  return x != x ? x : T((x > T(0)) - is_below_0(x));
}
template <class T>
inline T square(T x) {
  return times(x, x);
}
/// NaN when either is, as NumPy's.
template <class T>
inline T maximum(T a, T b) {
  if constexpr (kSame<T, float>)
    return maximum_of(a, b);
  else
    return a >= b || a != a ? a : b;
}
template <class T>
inline T minimum(T a, T b) {
  if constexpr (kSame<T, float>)
    return minimum_of(a, b);
  else
    return a <= b || a != a ? a : b;
}
template <class T>
inline T relu(T x) {
  return maximum(x, T(0));
}
template <class T>
inline T hardswish(T x) {
  return x * minimum(maximum(x + T(3), T(0)), T(6)) / T(6);
}
template <class T>
inline bool is_nan(T x) {
  return x != x;
}
template <class T>
inline bool is_infinite(T x) {
  if constexpr (kFloats<T>)
    return x == x && x - x != T(0);
  else
    return false;
}
template <class T>
inline bool is_finite(T x) {
  if constexpr (kFloats<T>)
    return x - x == T(0);
  else
    return true;
}

template <class T>
inline T divided(T a, T b) {
  return a / b;
}

/// numpy.floor_divide, from the remainder, so that a == q b + r; of integers by 0 it is 0.
template <class T>
inline T floor_divide(T a, T b) {
  if constexpr (kFloats<T>) {
    if (b == T(0)) return a / b;
    const T rest = truncated_rest(a, b);
    T quotient = (a - rest) / b;
    if (rest != T(0) && (b < T(0)) != (rest < T(0))) quotient -= T(1);
    if (quotient == T(0)) return with_sign_of(T(0), a / b);
    const T floored = round_down(quotient);
    return quotient - floored > T(0.5) ? floored + T(1) : floored;
  } else {
    if (b == T(0)) return T(0);
    if constexpr (kSigned<T>)
      if (b == T(-1)) return negative(a);
    return static_cast<T>(a / b - (a % b != 0 && is_below_0(a) != is_below_0(b)));
  }
}

/// With the sign of b; of integers by 0 it is 0.
template <class T>
inline T remainder_of(T a, T b) {
  if constexpr (kFloats<T>) {
    const T rest = truncated_rest(a, b);
    if (rest == T(0)) return with_sign_of(T(0), b);
    return (b < T(0)) != (rest < T(0)) ? rest + b : rest;
  } else {
    if (b == T(0)) return T(0);
    if constexpr (kSigned<T>)
      if (b == T(-1)) return T(0);
    const T rest = static_cast<T>(a % b);
    return rest != 0 && is_below_0(rest) != is_below_0(b) ? static_cast<T>(rest + b) : rest;
  }
}

/// The rest has the sign of a; integers by 0 give 0.
template <class T>
inline T truncated_rest_of(T a, T b) {
  if constexpr (kFloats<T>) {
    return truncated_rest(a, b);
  } else {
    if (b == T(0)) return T(0);
    if constexpr (kSigned<T>)
      if (b == T(-1)) return T(0);
    return static_cast<T>(a % b);
  }
}

/// Integers to powers that are not negative.
template <class T>
inline T raised(T base, T exponent) {
  if constexpr (kFloats<T>) {
    return power_of(base, exponent);
  } else {
    u64 result = 1, factor = static_cast<u64>(base);
    for (u64 left = static_cast<u64>(exponent); left > 0; left >>= 1, factor *= factor)
      if (left & 1) result *= factor;
    return static_cast<T>(result);
  }
}

template <class T>
inline bool equal(T a, T b) {
  return a == b;
}
template <class T>
inline bool not_equal(T a, T b) {
  return a != b;
}
template <class T>
inline bool less(T a, T b) {
  return a < b;
}
template <class T>
inline bool less_equal(T a, T b) {
  return a <= b;
}
template <class T>
inline bool greater(T a, T b) {
  return a > b;
}
template <class T>
inline bool greater_equal(T a, T b) {
  return a >= b;
}
template <class T>
inline bool logical_not(T x) {
  return x == T(0);
}
template <class T>
inline bool logical_and(T a, T b) {
  return a != T(0) && b != T(0);
}
template <class T>
inline bool logical_or(T a, T b) {
  return a != T(0) || b != T(0);
}
template <class T>
inline bool logical_xor(T a, T b) {
  return (a != T(0)) != (b != T(0));
}

// ---- Bits.

template <class T>
inline T invert(T x) {
  if constexpr (kSame<T, bool>)
    return !x;
  else
    return static_cast<T>(~x);
}
template <class T>
inline T bitwise_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
inline T bitwise_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
inline T bitwise_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
/// By a negative number or by all bits, every bit leaves.
template <class T>
inline T left_shift(T a, T b) {
  const u64 by = static_cast<u64>(b);
  return by < 8 * sizeof(T) ? static_cast<T>(static_cast<u64>(a) << by) : T(0);
}
template <class T>
inline T right_shift(T a, T b) {
  const u64 by = static_cast<u64>(b);
  if (by < 8 * sizeof(T)) return static_cast<T>(a >> by);
  return is_below_0(a) ? static_cast<T>(-1) : T(0);
}

template <class T>
inline T choose(bool condition, T a, T b) {
  return condition ? a : b;
}

}  // namespace tensor::device

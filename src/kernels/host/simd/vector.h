// Vectors of floats of this instruction set's width, on the vector extensions of GCC and clang.
// TENSOR_SIMD_ISA (a namespace) and TENSOR_SIMD_LANES come from the build, one pair a copy.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

inline constexpr int kLanes = TENSOR_SIMD_LANES;
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t Ints __attribute__((vector_size(kLanes * 4)));
typedef std::uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef std::uint16_t Halves __attribute__((vector_size(kLanes * 2)));
typedef std::uint8_t Bytes __attribute__((vector_size(kLanes)));

inline Floats splat(float x) { return x - Floats{}; }
inline Ints splat_bits(std::uint32_t x) { return static_cast<std::int32_t>(x) - Ints{}; }
inline Ints bits(Floats x) { return (Ints)x; }
inline Floats from_bits(Ints x) { return (Floats)x; }

template <class V, class T>
inline V load_as(const T* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class V, class T>
inline void store_as(T* p, V v) {
  std::memcpy(p, &v, sizeof v);
}
typedef float LooseFloats __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
inline Floats load(const float* p) { return *reinterpret_cast<const LooseFloats*>(p); }
inline void store(float* p, Floats v) { *reinterpret_cast<LooseFloats*>(p) = v; }

// The first `count` < kLanes floats; the others are 0, their memory is not touched.
inline Floats load_part(const float* p, std::int64_t count) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#elif defined(__AVX2__)
  const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7};
  return (Floats)_mm256_maskload_ps(p, (__m256i)(lanes < static_cast<std::int32_t>(count)));
#else
  Floats v = {};
  std::memcpy(&v, p, static_cast<std::size_t>(count) * 4);
  return v;
#endif
}
// It stores fewer than kLanes. By halves: on some processors AVX2's stores by mask take 40 clocks.
inline void store_part(float* p, Floats v, std::int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), (__m512)v);
#elif defined(__AVX2__)
  __m128 part = _mm256_castps256_ps128((__m256)v);
  if (count & 4) _mm_storeu_ps(p, part), p += 4, part = _mm256_extractf128_ps((__m256)v, 1);
  if (count & 2)
    _mm_storel_pi(reinterpret_cast<__m64*>(p), part), p += 2, part = _mm_movehl_ps(part, part);
  if (count & 1) _mm_store_ss(p, part);
#else
  std::memcpy(p, &v, static_cast<std::size_t>(count) * 4);
#endif
}

inline Floats square_root(Floats x) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_sqrt_ps(static_cast<__mmask16>(-1), (__m512)x);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (Floats)_mm_sqrt_ps((__m128)x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// a / b up to two units in the last place, for b from 1 to 2^126: a division of AVX-512 takes as
// long as ten other instructions.
inline Floats quotient(Floats a, Floats b) {
#if defined(__AVX512F__)
  const Floats about = (Floats)_mm512_maskz_rcp14_ps(static_cast<__mmask16>(-1), (__m512)b);
  return a * (about * (2.0f - b * about));
#else
  return a / b;
#endif
}

inline Floats magnitude(Floats x) { return from_bits(bits(x) & 0x7fffffff); }
inline Ints sign_bit(Floats x) { return bits(x) & splat_bits(0x80000000u); }
inline Floats with_sign(Floats x, Ints sign) { return from_bits(bits(x) | sign); }

// The larger, a NaN whichever operand it is; a where both are zeros.
inline Floats larger(Floats a, Floats b) { return ((a >= b) | (a != a)) ? a : b; }
inline Floats smaller(Floats a, Floats b) { return ((a <= b) | (a != a)) ? a : b; }
// A NaN in `a` stays, one in `limit` has no effect: x86's instructions give their second operand
// where one is a NaN or both are zeros.
inline Floats at_most(Floats a, Floats limit) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_min_ps(static_cast<__mmask16>(-1), (__m512)limit, (__m512)a);
#elif defined(__AVX__)
  return (Floats)_mm256_min_ps((__m256)limit, (__m256)a);
#else
  return a > limit ? limit : a;
#endif
}
inline Floats at_least(Floats a, Floats limit) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_max_ps(static_cast<__mmask16>(-1), (__m512)limit, (__m512)a);
#elif defined(__AVX__)
  return (Floats)_mm256_max_ps((__m256)limit, (__m256)a);
#else
  return a < limit ? limit : a;
#endif
}
template <class Bounds>
inline Floats within(Floats a, const Bounds& bounds) {
  return at_most(at_least(a, splat(bounds.least)), splat(bounds.most));
}
template <class Bounds>
inline Floats sloped(Floats a, const Bounds& bounds) {
  return at_least(a, a * bounds.slope);
}
template <class Bounds>
inline Floats bounded(Floats a, const Bounds& bounds) {
  if (bounds.have_slope()) a = sloped(a, bounds);
  return bounds.have_limits() ? within(a, bounds) : a;
}

inline Floats truth(Ints mask) { return from_bits(mask & 0x3f800000); }

// Behind the parameters of a lambda: it is never called. What a lambda captures is in memory where
// it is, so that an array of sums would be stored in each step of a loop; [[gnu::flatten]] does not
// reach lambdas that are used twice.
#define TENSOR_INLINED __attribute__((always_inline))

// Calls f(0) ... f(n - 1), unrolled while the code is still being inlined: only then does GCC hold
// an array of vectors in registers.
template <int n, class F>
[[gnu::always_inline]] inline void unroll(F&& f) {
  if constexpr (n > 0) {
    unroll<n - 1>(f);
    f(n - 1);
  }
}

inline bool any(Ints mask) {
  std::int32_t all = 0;
  for (int i = 0; i < kLanes; ++i) all |= mask[i];
  return all != 0;
}

// Every lane is the one `by` lanes ahead, around the end.
template <int by, class V>
inline V rotated(V v) {
  if constexpr (sizeof(V) == 64)
    return __builtin_shufflevector(v, v, by % 16, (by + 1) % 16, (by + 2) % 16, (by + 3) % 16,
                                   (by + 4) % 16, (by + 5) % 16, (by + 6) % 16, (by + 7) % 16,
                                   (by + 8) % 16, (by + 9) % 16, (by + 10) % 16, (by + 11) % 16,
                                   (by + 12) % 16, (by + 13) % 16, (by + 14) % 16, (by + 15) % 16);
  else if constexpr (sizeof(V) == 32)
    return __builtin_shufflevector(v, v, by % 8, (by + 1) % 8, (by + 2) % 8, (by + 3) % 8,
                                   (by + 4) % 8, (by + 5) % 8, (by + 6) % 8, (by + 7) % 8);
  else
    return __builtin_shufflevector(v, v, by % 4, (by + 1) % 4, (by + 2) % 4, (by + 3) % 4);
}

// All lanes folded by f, in every lane.
template <class F>
inline Floats folded(Floats v, F f) {
  if constexpr (kLanes > 8) v = f(v, rotated<8>(v));
  if constexpr (kLanes > 4) v = f(v, rotated<4>(v));
  v = f(v, rotated<2>(v));
  return f(v, rotated<1>(v));
}

inline double sum_of(Floats v) {
  double lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = static_cast<double>(v[i]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

}  // namespace
}  // namespace tensor::simd::TENSOR_SIMD_ISA

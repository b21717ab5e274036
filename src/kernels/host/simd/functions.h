// exp, log, tanh, erf and their like on vectors. The coefficients come from
// scripts/fit_functions.py; errors are at most 2 ulp for exp, 4 ulp for the others, of activations
// 6e-7 |x| (tests/kernels/simd_functions_test.cpp).
#pragma once

#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

// c[0] + x (c[1] + x (c[2] + ...
template <int n>
inline Floats polynomial(const float (&c)[n], Floats x) {
  Floats sum = splat(c[n - 1]);
  for (int i = n - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

// Adding it rounds a float of less than 2^22 to an integer in the last bits.
inline constexpr float kRounder = 0x1.8p23f;

inline Floats power_of_two(Ints n) { return from_bits((n + 127) << 23); }

struct Reduced {
  Floats exp;  // of the rest
  Ints power;  // of two
};
// |x| < 2^20: e^x = exp * 2^power.
inline Reduced reduce_exp(Floats x) {
  constexpr float kExp[] = {0x1p+0f,        0x1.ffffaap-2f, 0x1.5554aap-3f,
                            0x1.559c12p-5f, 0x1.12334ap-7f, 0x1.39a49ap-10f};
  const Floats shifted = x * 0x1.715476p+0f + kRounder;
  const Floats n = shifted - kRounder;
  const Floats rest = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
  return {rest * polynomial(kExp, rest) + 1.0f, bits(shifted) - bits(splat(kRounder))};
}

inline Floats exp(Floats x) {
  const Reduced r = reduce_exp(at_least(at_most(x, splat(90.0f)), splat(-105.0f)));
  // In two steps: the power itself may overflow, or the result be subnormal.
  const Ints half = r.power >> 1;
  return r.exp * power_of_two(half) * power_of_two(r.power - half);
}

// For x <= 0; 0 where the result would be subnormal.
inline Floats exp_negative(Floats x) {
  const Reduced r = reduce_exp(at_least(x, splat(-88.0f)));
  const Floats y = r.exp * power_of_two(r.power);
  return x < splat(-87.33f) ? Floats{} : y;
}

inline Floats sigmoid(Floats x) {
  const Floats e = exp(-magnitude(x));
  const Floats upper = quotient(splat(1.0f), 1.0f + e);
  return x < Floats{} ? e * upper : upper;
}

inline Floats tanh(Floats x) {
  constexpr float kTanh[] = {-0x1.555532p-2f, 0x1.1106f6p-3f, -0x1.b835a6p-5f, 0x1.51f8e6p-6f,
                             -0x1.750d7p-8f};
  const Floats a = magnitude(x), z = a * a;
  const Floats small = a + a * z * polynomial(kTanh, z);
  const Floats large = 1.0f - quotient(splat(2.0f), exp(2.0f * at_most(a, splat(10.0f))) + 1.0f);
  return with_sign(a < splat(0.625f) ? small : large, sign_bit(x));
}

inline Floats erf(Floats x) {
  constexpr float kErf[] = {0x1.20dd76p+0f, -0x1.8128b8p-2f, 0x1.ce889p-4f,   -0x1.c05b92p-6f,
                            0x1.b2102p-8f,  -0x1.78642cp-9f, 0x1.997636p-10f, -0x1.b6106p-12f};
  constexpr float kErfc[] = {0x1.d97fcp+0f,   0x1.51c988p+1f,  0x1.afb44ap-1f,  0x1.52051cp-5f,
                             -0x1.35bdecp-7f, 0x1.84335ap-10f, -0x1.798c84p-14f};
  const Floats a = at_most(magnitude(x), splat(4.0f));
  const Floats small = a * polynomial(kErf, a * a);
  const Floats large = 1.0f - exp_negative(-polynomial(kErfc, at_least(a, splat(1.0f)) - 1.0f));
  return with_sign(a < splat(1.0f) ? small : large, sign_bit(x));
}

inline Floats log(Floats x) {
  constexpr float kLog[] = {0x1.555548p-2f,  -0x1.00007p-2f,  0x1.99a54p-3f,
                            -0x1.552f1ap-3f, 0x1.230370p-3f,  -0x1.00fb0cp-3f,
                            0x1.f00c1p-4f,   -0x1.bf8eecp-4f, 0x1.b431dcp-5f};
  const Ints subnormal = x < splat(0x1p-126f);
  const Floats normal = subnormal ? x * 0x1p23f : x;
  constexpr std::int32_t kRootHalf = 0x3f3504f3;
  const Ints power = (bits(normal) - kRootHalf) >> 23;
  const Floats f = from_bits(bits(normal) - (power << 23)) - 1.0f;  // sqrt(1/2) <= 1 + f < sqrt(2)
  const Floats e = __builtin_convertvector(power - (subnormal & 23), Floats), z = f * f;
  const Floats tail = f * z * polynomial(kLog, f) - 0.5f * z + e * 0x1.7f7d1cp-20f;
  const Floats y = f + tail + e * 0x1.62e4p-1f;
  const Floats infinity = splat(__builtin_inff());
  const Floats special = x == Floats{} ? -infinity : splat(__builtin_nanf(""));
  return x > Floats{} ? (x < infinity ? y : x) : special;
}

// The quarter turn that x is in, and the rest; |x| < 1000.
struct Angle {
  Floats rest;
  Ints quarter;
};
inline Angle reduce_angle(Floats x) {
  const Floats shifted = x * 0x1.45f306p-1f + kRounder;
  const Floats n = shifted - kRounder;
  return {x - n * 0x1.92p+0f - n * 0x1.fb4p-12f - n * 0x1.444p-24f - n * 0x1.68c234p-39f,
          bits(shifted)};
}

// sin of an angle that is `turns` quarters ahead of x.
inline Floats sin_ahead(Floats x, std::int32_t turns) {
  constexpr float kSin[] = {-0x1.555544p-3f, 0x1.1106c6p-7f, -0x1.991c24p-13f};
  constexpr float kCos[] = {0x1.55554ap-5f, -0x1.6c0c14p-10f, 0x1.99de68p-16f};
  const Angle angle = reduce_angle(x);
  const Floats r = angle.rest, z = r * r;
  const Floats sine = r + r * z * polynomial(kSin, z);
  const Floats cosine = 1.0f - 0.5f * z + z * z * polynomial(kCos, z);
  const Ints quarter = angle.quarter + turns;
  const Floats y = (quarter & 1) != 0 ? cosine : sine;
  return from_bits(bits(y) ^ ((quarter & 2) << 30));
}

inline Floats sin(Floats x) {
  if (any(~(magnitude(x) < splat(1000.0f)))) {
    for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sinf(x[i]);
    return x;
  }
  return from_bits(bits(sin_ahead(magnitude(x), 0)) ^ sign_bit(x));
}
inline Floats cos(Floats x) {
  if (any(~(magnitude(x) < splat(1000.0f)))) {
    for (int i = 0; i < kLanes; ++i) x[i] = __builtin_cosf(x[i]);
    return x;
  }
  return sin_ahead(magnitude(x), 1);
}

// x times the normal distribution function p, of which (p(x) - 1/2) / x is a polynomial in x^2 up
// to 5.25^2, moved to -1 to 1. Its error there is 2^-23.5, and beyond p differs from 0 or 1 by
// less.
inline Floats gelu(Floats x) {
  constexpr float kGelu[] = {0x1.13c84ap-3f,  -0x1.12f366p-4f, 0x1.96aeccp-5f, -0x1.45c8dep-5f,
                             0x1.06aba2p-5f,  -0x1.99845cp-6f, 0x1.2c40cep-6f, -0x1.a87d28p-7f,
                             0x1.2937cp-7f,   -0x1.4f8b4p-8f,  0x1.ea115p-10f, -0x1.5bb1ap-10f,
                             0x1.7dd71ep-10f, -0x1.2619ap-11f};
  const Floats limit = splat(5.25f), a = at_least(at_most(x, limit), -limit);
  const Floats p = a * polynomial(kGelu, a * a * 0x1.293726p-4f - 1.0f) + 0.5f;
  return x * (a > -limit ? p : Floats{});
}
inline Floats gelu_tanh(Floats x) {
  return 0.5f * x * (1.0f + tanh(0x1.988454p-1f * (x + 0.044715f * x * x * x)));
}
// Beyond the limits the quotient is nearer to 0, or to x, than the error that x may have.
inline Floats silu(Floats x) {
  const Reduced r = reduce_exp(at_least(at_most(-x, splat(87.0f)), splat(-87.0f)));
  return quotient(x, 1.0f + r.exp * power_of_two(r.power));
}
inline Floats hardswish(Floats x) {
  return x * at_most(at_least(x + 3.0f, Floats{}), splat(6.0f)) * (1.0f / 6.0f);
}

// Numbers of 2^23 and above, infinities and NaN are integers already.
inline Floats nearest(Floats x) {
  const Floats a = magnitude(x);
  const Floats rounded = with_sign((a + 0x1p23f) - 0x1p23f, sign_bit(x));
  return a < splat(0x1p23f) ? rounded : x;
}
inline Floats floor(Floats x) {
  const Floats r = nearest(x);
  return with_sign(r > x ? r - 1.0f : r, sign_bit(x));
}
inline Floats ceil(Floats x) {
  const Floats r = nearest(x);
  return with_sign(r < x ? r + 1.0f : r, sign_bit(x));
}

// To the nearest bfloat16 or half and back, ties to even.
inline Floats round_bf16(Floats x) {
  const Ints b = bits(x), rounded = (b + 0x7fff + ((b >> 16) & 1)) & splat_bits(0xffff0000u);
  return x == x ? from_bits(rounded) : x;
}
inline Ints half_bits(Floats x) {
  const Ints sign = (bits(x) >> 16) & 0x8000, a = bits(magnitude(x));
  const Ints small = bits(from_bits(a) + 0.5f) - 0x3f000000;
  const Ints normal = ((a + 0xfff + ((a >> 13) & 1)) - 0x38000000) >> 13;
  const Ints large = a > 0x7f800000 ? splat_bits(0x7e00u) : splat_bits(0x7c00u);
  return sign | (a < 0x38800000 ? small : (a >= 0x477ff000 ? large : normal));
}
inline Floats float_of_half(Ints h) {
  const Ints a = h & 0x7fff, sign = (h & 0x8000) << 16;
  const Floats small = __builtin_convertvector(a, Floats) * 0x1p-24f;
  const Ints wide = (a << 13) + (a >= 0x7c00 ? splat_bits(0x70000000u) : splat_bits(0x38000000u));
  return with_sign(a < 0x400 ? small : from_bits(wide), sign);
}
inline Floats round_f16(Floats x) { return float_of_half(half_bits(x)); }

}  // namespace
}  // namespace tensor::simd::TENSOR_SIMD_ISA

// A step of a product with mma.sync, whatever its operands: 32 bytes of depth, 16 elements of
// 16-bit floats, 8 of float32, which are rounded to tf32, or 32 of i8.
#pragma once

#include "numbers.h"

namespace tensor::device {

template <class Element>
inline constexpr bool kIsTf32 = kSame<Element, float>;
/// Elements in 16 bytes, the width of the matrices that ldmatrix loads.
template <class Element>
inline constexpr int kItems = 16 / sizeof(Element);

/// What was loaded, as the instruction takes it.
template <class Element>
inline void round_operands(u32 (&m)[4]) {
  if constexpr (kIsTf32<Element>)
#pragma unroll
    for (u32& x : m) x = Tf32::rounded(__uint_as_float(x));
}

/// d += a b, 16 x 8: a as four matrices, upper and lower rows, then those of the other half of the
/// depth; b as two, of either half. kWide: one instruction does it (sm_80), otherwise each half
/// takes its own; `has_high`: whether the second half is more than zeros.
template <class Element, bool kWide>
inline void multiply_step(SumOf<Element> (&d)[4], const u32 (&a)[4], u32 low, u32 high,
                          bool has_high = true) {
  if constexpr (kIsBytes<Element>) {
    Bytes::multiply(d, a, {low, high});
  } else if constexpr (kIsTf32<Element>) {
    Tf32::multiply(d, a, {low, high});
  } else if constexpr (kWide) {
    Element::multiply(d, a, {low, high});
  } else {
    Element::multiply(d, {a[0], a[1]}, {low});
    if (has_high) Element::multiply(d, {a[2], a[3]}, {high});
  }
}

}  // namespace tensor::device

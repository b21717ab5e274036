// Products of words of the depth: a word is a float, or two neighbours of the depth in bf16.
#pragma once

#include "vector.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

struct Singles {
  static Floats add(Floats sum, std::int32_t a, Floats b) {
    return sum + from_bits(a - Ints{}) * b;
  }
};

#if defined(__AVX512BF16__)
// Products of bf16 are exact in float32, and so is their sum rounded; subnormals count as 0.
struct Pairs {
  static Floats add(Floats sum, std::int32_t a, Floats b) {
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(a), (__m512bh)b);
  }
};
#endif

}  // namespace
}  // namespace tensor::simd::TENSOR_SIMD_ISA

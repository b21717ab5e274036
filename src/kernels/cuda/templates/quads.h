// Bytes of which a lane has two of every eight, as the sums of Tensor Cores lie, are exchanged by
// the four lanes of a row, so that each stores eight in one transaction.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// Each of four lanes has four 16-bit numbers; lane i gets the number i of all four, in order.
inline void transpose_quad(u32 (&x)[2]) {
  constexpr u32 kLow = 0xffff, kAll = 0xffffffff;
  const bool is_right = threadIdx.x & 2, is_odd = threadIdx.x & 1;
  const u32 half = __shfl_xor_sync(kAll, is_right ? x[0] : x[1], 2);
  const u32 left = is_right ? half : x[0], right = is_right ? x[1] : half;
  const u32 first = left & kLow | right << 16, second = left >> 16 | right & ~kLow;
  const u32 other = __shfl_xor_sync(kAll, is_odd ? first : second, 1);
  const u32 low = is_odd ? other : first, high = is_odd ? second : other;
  x[0] = low & kLow | high << 16;
  x[1] = low >> 16 | high & ~kLow;
}

}  // namespace tensor::device

// What layer_norm needs to know of rows, handed over by the kernel that makes them: for every 64
// elements of every row their sum and that of their squares, [pieces][rows][2]. Squares are summed
// as they are: that loses (mean / deviation)^2 * 2^-22 of the variance, less than rounding such a
// row to 16 bits did.
#pragma once

#include "numbers.h"

namespace tensor::device {

inline constexpr int kSummed = 64;  // as in src/ops/op.h

/// Mean and `gain` / deviation of row `row` of `rows`, each of `count` elements.
inline void statistics_of(float (&to)[2], const float* sums, int rows, int row, int count,
                          float eps, float gain) {
  float all[2] = {};
#pragma unroll 8
  for (int piece = 0; piece < count / kSummed; ++piece) {
    float part[2];
    load_pack<2>(part, sums + (i64(piece) * rows + row) * 2);
    all[0] += part[0], all[1] += part[1];
  }
  const float mean = all[0] / float(count);
  const float variance = fmaxf(all[1] / float(count) - mean * mean, 0.0f);
  to[0] = mean, to[1] = gain * rsqrtf(variance + eps);
}

/// One of every lane's kCount sums, added up over kCount lanes kStep apart: lane i * kStep of those
/// gets sum i.
template <int kCount, int kStep>
inline float scattered_sum(const float (&x)[kCount]) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    constexpr int kHalf = kCount / 2;
    const bool is_upper = threadIdx.x / (kStep * kHalf) % 2 != 0;
    float mine[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float other =
          __shfl_xor_sync(0xffffffffu, is_upper ? x[i] : x[i + kHalf], kStep * kHalf);
      mine[i] = (is_upper ? x[i + kHalf] : x[i]) + other;
    }
    return scattered_sum<kHalf, kStep>(mine);
  }
}

}  // namespace tensor::device

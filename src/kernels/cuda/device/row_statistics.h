// Mean and deviation of rows that come through shared memory in tiles of 128 bytes a row, taken
// while something else is done with the tiles.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// kRows rows (a multiple of eight) of Element, a 16-bit float, by kWarps warps. Tensor Cores sum:
/// eight rows x above eight rows of ones, times x transposed, have the squares of x on their
/// diagonal and the sums of x below. Squares are summed as they are: that loses
/// (mean / deviation)^2 * 2^-22 of the variance, less than rounding such a row to 16 bits did.
template <class Element, int kRows, int kWarps>
struct RowStatistics {
  static constexpr int kBlocks = kRows / 8, kMine = (kBlocks + kWarps - 1) / kWarps;
  static_assert(kRows % 8 == 0);
  // Where there are too few, the last one is done again.
  static int block_of(int warp, int i) { return min(warp + i * kWarps, kBlocks - 1); }

  // Products wait for those before with the same sums, loads for nothing: many at once, as far as
  // there are registers.
  static constexpr int kParts = kMine > 2 ? 1 : 2, kAtOnce = kMine > 4 ? 2 : 4;

  float sums[kMine][kParts][4] = {};

  /// A tile as the copy engine writes it, chunks of 16 bytes exchanged.
  void add(u32 tile, int warp) {
    const int lane = threadIdx.x % 32;
    const u32 ones = Element::pair(1.0f, 1.0f);
#pragma unroll
    for (int first = 0; first < 4; first += kAtOnce) {
      u32 m[kMine][kAtOnce / 2][4];
#pragma unroll
      for (int i = 0; i < kMine; ++i)
#pragma unroll
        for (int j = 0; j < kAtOnce / 2; ++j)
          load_matrices(m[i][j], tile + (block_of(warp, i) * 8 + lane % 8) * 128 +
                                     (((first / 2 + j) * 4 + lane / 8) ^ lane % 8) * 16);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j)
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          const u32 low = m[i][j / 2][j % 2 * 2], high = m[i][j / 2][j % 2 * 2 + 1];
          Element::multiply(sums[i][j % kParts], {low, ones, high, ones}, {low, high});
        }
    }
  }

  /// Each row's mean and `gain` / its deviation, side by side, of rows of `count` elements.
  void store(float* to, int warp, int count, float eps, float gain) const {
    // The lane that has the diagonal's element of a row has the sum of that row, too.
    const int row = threadIdx.x % 32 / 4;
    if (threadIdx.x % 4 != row / 2) return;
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      if (warp + i * kWarps >= kBlocks) continue;
      float all[4] = {};
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int k = 0; k < 4; ++k) all[k] += sums[i][part][k];
      const float square = row % 2 ? all[1] : all[0], sum = row % 2 ? all[3] : all[2];
      const float mean = sum / float(count);
      const float variance = fmaxf(square / float(count) - mean * mean, 0.0f);
      const float pair[2] = {mean, gain * rsqrtf(variance + eps)};
      store_pack<2>(to + 2 * (block_of(warp, i) * 8 + row), pair);
    }
  }
};

}  // namespace tensor::device

// Products of tiles in shared memory on the ordinary cores: each lane has a square of sums in its
// registers, and reads both factors in fours.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// A warp's tile: its lanes lie four down and eight across, and have kDown by kAcross sums each.
/// Both factors lie with the depth outermost, so many elements from one to the next; fours of a
/// line's neighbours at multiples of 16 bytes.
template <class Sum, int kDown, int kAcross, int kLeftPitch, int kRightPitch>
struct PlainWarp {
  static constexpr int kLanesDown = 4, kLanesAcross = 8;
  static constexpr int kRows = kLanesDown * kDown, kColumns = kLanesAcross * kAcross;
  static_assert(kDown % 4 == 0 && kAcross % 4 == 0, "a lane has lines in fours");

  Sum sums[kDown][kAcross] = {};

  // Neighbours, even and odd, read the same columns, and those two apart the same rows: shared
  // memory serves such reads of 16 bytes two for one.
  static int lane_down() { return threadIdx.x & 1 | threadIdx.x >> 3 & 2; }
  static int lane_across() { return threadIdx.x >> 1 & 7; }
  // Number i of a lane's rows and columns: fours of all lanes before the next.
  static int row(int i) { return (i / 4 * kLanesDown + lane_down()) * 4 + i % 4; }
  static int column(int i) { return (i / 4 * kLanesAcross + lane_across()) * 4 + i % 4; }

  template <int kLanes, int kCount>
  static void load(Sum (&to)[kCount], const Sum* from) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const auto four = *reinterpret_cast<const Pack<Sum, 4>*>(from + i * kLanes);
#pragma unroll
      for (int j = 0; j < 4; ++j) to[i + j] = four.items[j];
    }
  }

  static void add_product(float& sum, float a, float b) { sum = fmaf(a, b, sum); }
  static void add_product(int& sum, int a, int b) { sum += a * b; }

  /// kDepth of the depth from where the warp's tiles begin.
  template <int kDepth>
  void multiply(const Sum* left, const Sum* right) {
    left += row(0), right += column(0);
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      Sum a[kDown], b[kAcross];
      load<kLanesDown>(a, left + k * kLeftPitch);
      load<kLanesAcross>(b, right + k * kRightPitch);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) add_product(sums[i][j], a[i], b[j]);
    }
  }
};

}  // namespace tensor::device

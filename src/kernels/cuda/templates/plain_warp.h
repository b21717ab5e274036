// Products of tiles in shared memory on the ordinary cores: each lane has a square of sums in its
// registers, and reads both factors in fours.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// A warp's tile: its lanes lie four down and eight across, and have kDown by kAcross sums each.
/// Both factors lie so many elements apart from one line to the next, a multiple of 16 bytes.
template <class Sum, int kDown, int kAcross, int kLeftPitch, int kRightPitch>
struct PlainWarp {
  static constexpr int kLanesDown = 4, kLanesAcross = 8;
  static constexpr int kRows = kLanesDown * kDown, kColumns = kLanesAcross * kAcross;

  Sum sums[kDown][kAcross] = {};

  // Neighbours, even and odd, read the same columns, and those two apart the same rows: shared
  // memory serves such reads of 16 bytes two for one.
  static int lane_down() { return threadIdx.x & 1 | threadIdx.x >> 3 & 2; }
  static int lane_across() { return threadIdx.x >> 1 & 7; }
  /// The lanes that have the same rows get `both` of all their numbers.
  template <class Both>
  static float over_row(float x, const Both& both) {
#pragma unroll
    for (int bit = 2; bit <= 8; bit *= 2) x = both(x, __shfl_xor_sync(0xffffffffu, x, bit));
    return x;
  }

  // ---- Factors with the depth outermost, whose lines lie next to each other.

  /// Number i of a lane's rows and columns: fours of all lanes before the next, then a pair and one
  /// of what is left.
  static int row(int i) { return line<kLanesDown, kDown>(lane_down(), i); }
  static int column(int i) { return line<kLanesAcross, kAcross>(lane_across(), i); }

  template <int kLanes, int kCount>
  static int line(int lane, int i) {
    constexpr int kFours = kCount / 4 * 4, kPairs = kCount / 2 * 2;
    const int begin = i < kFours ? i / 4 * 4 : i < kPairs ? kFours : kPairs;
    return begin * kLanes + lane * (i < kFours ? 4 : i < kPairs ? 2 : 1) + i - begin;
  }
  template <int kItems>
  using Items = Pack<Sum, kItems>;
  // Calls each(Items{}, i, place) for lines side by side from number i on: their place behind four
  // times the lane, where its first four begin.
  template <int kLanes, int kCount, class Each>
  static void each_items(int lane, const Each& each) {
    constexpr int kFours = kCount / 4 * 4, kPairs = kCount / 2 * 2;
#pragma unroll
    for (int i = 0; i < kFours; i += 4) each(Items<4>{}, i, i * kLanes);
    if constexpr (kPairs > kFours) each(Items<2>{}, kFours, kFours * kLanes - 2 * lane);
    if constexpr (kCount > kPairs) each(Items<1>{}, kPairs, kPairs * kLanes - 3 * lane);
  }
  template <int kLanes, int kCount>
  static void load(Sum (&to)[kCount], const Sum* from, int lane) {
    each_items<kLanes, kCount>(lane, [&](auto items, int i, int place) {
      using Read = decltype(items);
      const Read read = *reinterpret_cast<const Read*>(from + place);
#pragma unroll
      for (int j = 0; j < int(sizeof(Read) / sizeof(Sum)); ++j) to[i + j] = read.items[j];
    });
  }
  template <int kLanes, int kCount>
  static void store(Sum* to, const Sum (&from)[kCount], int lane) {
    each_items<kLanes, kCount>(lane, [&](auto items, int i, int place) {
      using Written = decltype(items);
#pragma unroll
      for (int j = 0; j < int(sizeof(Written) / sizeof(Sum)); ++j) items.items[j] = from[i + j];
      *reinterpret_cast<Written*>(to + place) = items;
    });
  }
  /// A lane's sums of one row to where the warp's columns begin, or of one column to its rows.
  static void store_row(Sum* to, const Sum (&row)[kAcross]) {
    store<kLanesAcross>(to + 4 * lane_across(), row, lane_across());
  }
  static void store_column(Sum* to, const Sum (&column)[kDown]) {
    store<kLanesDown>(to + 4 * lane_down(), column, lane_down());
  }

  static void add_product(float& sum, float a, float b) { sum = fmaf(a, b, sum); }
  static void add_product(int& sum, int a, int b) { sum += a * b; }

  /// kDepth of the depth from where the warp's tiles begin.
  template <int kDepth>
  void multiply(const Sum* left, const Sum* right) {
    constexpr int kTogether = kDepth < 16 ? kDepth : 16;  // more does not fit the cache of code
    left += 4 * lane_down(), right += 4 * lane_across();
#pragma unroll kTogether
    for (int k = 0; k < kDepth; ++k) {
      Sum a[kDown], b[kAcross];
      load<kLanesDown>(a, left + k * kLeftPitch, lane_down());
      load<kLanesAcross>(b, right + k * kRightPitch, lane_across());
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j) add_product(sums[i][j], a[i], b[j]);
    }
  }

  // ---- Factors with the depth innermost, as rows lie in memory. A lane's lines lie as far apart
  // as there are lanes, so that those of all lanes are in different banks, if pitches are four more
  // than a multiple of eight.

  static int near_row(int i) { return i * kLanesDown + lane_down(); }
  static int near_column(int i) { return i * kLanesAcross + lane_across(); }

  /// kFours times four of the depth.
  template <int kFours>
  void multiply_rows(const Sum* left, const Sum* right) {
    using Four = Items<4>;
    constexpr int kTogether = 2;  // more takes registers for what comes next
    left += lane_down() * kLeftPitch, right += lane_across() * kRightPitch;
#pragma unroll kTogether
    for (int four = 0; four < kFours; ++four) {
      Four b[kAcross];
#pragma unroll
      for (int j = 0; j < kAcross; ++j)
        b[j] = *reinterpret_cast<const Four*>(right + j * (kLanesAcross * kRightPitch) + 4 * four);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        const Four a =
            *reinterpret_cast<const Four*>(left + i * (kLanesDown * kLeftPitch) + 4 * four);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int j = 0; j < kAcross; ++j) add_product(sums[i][j], a.items[k], b[j].items[k]);
      }
    }
  }
};

}  // namespace tensor::device

// Folding the elements of a row that several threads hold.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// kThreads threads a row: 1 to 32 of a warp (a power of two), or a whole block of warps. All
/// threads of the warp or block call together and get the same result.
template <int kThreads>
struct RowTeam {
  static constexpr int kWarps = (kThreads + 31) / 32;
  static_assert(kThreads % 32 == 0 || (kThreads < 32 && (kThreads & (kThreads - 1)) == 0));

  /// `shared` has kWarps numbers that nothing else is kept in.
  template <class F>
  static float fold(float x, float* shared, F f) {
    x = fold_lanes < kThreads < 32 ? kThreads : 32 > (x, f);
    if constexpr (kWarps > 1) {
      if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
      __syncthreads();
      if constexpr (kWarps <= 8) {
        x = shared[0];
#pragma unroll
        for (int warp = 1; warp < kWarps; ++warp) x = f(x, shared[warp]);
      } else {
        constexpr int kLanes = kWarps <= 16 ? 16 : 32;
        const int lane = threadIdx.x % kLanes;
        x = shared[lane < kWarps ? lane : 0];
        x = fold_some<kLanes>(x, lane, f);
      }
    }
    return x;
  }
  static float sum(float x, float* shared) {
    return fold(x, shared, [](float a, float b) { return a + b; });
  }
  static float largest(float x, float* shared) {
    return fold(x, shared, [](float a, float b) { return maximum(a, b); });
  }
  static float smallest(float x, float* shared) {
    return fold(x, shared, [](float a, float b) { return minimum(a, b); });
  }

 private:
  template <int kLanes, class F>
  static float fold_lanes(float x, F f) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      x = f(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
  }
  // Of the first kWarps lanes of each kLanes, for all of them.
  template <int kLanes, class F>
  static float fold_some(float x, int lane, F f) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) {
      const float other = __shfl_down_sync(0xffffffffu, x, step, kLanes);
      if (lane + step < kWarps) x = f(x, other);
    }
    return __shfl_sync(0xffffffffu, x, 0, kLanes);
  }
};

}  // namespace tensor::device

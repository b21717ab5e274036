// Folding rows that a block goes through window by window. A thread holds kPacks packs of a window,
// of which the first `held` are elements of the row; what it has seen is a state of plain numbers.
#pragma once

#include "reduce.h"

namespace tensor::device {

/// f of every element that is held.
template <int kPacks, int kPack, class F>
inline void for_held(const float (&x)[kPacks][kPack], int held, F f) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (p < held) {
#pragma unroll
      for (int e = 0; e < kPack; ++e) f(x[p][e]);
    }
}

struct RowSum {
  float total;
  static RowSum start() { return {0.0f}; }
  template <int kPacks, int kPack>
  void take(const float (&x)[kPacks][kPack], int held) {
    for_held(x, held, [&](float each) { total += each; });
  }
  void merge(const RowSum& other) { total += other.total; }
};

struct RowLargest {
  float total;
  static RowLargest start() { return {-kInfinity}; }
  template <int kPacks, int kPack>
  void take(const float (&x)[kPacks][kPack], int held) {
    for_held(x, held, [&](float each) { total = maximum(total, each); });
  }
  void merge(const RowLargest& other) { total = maximum(total, other.total); }
};

struct RowSmallest {
  float total;
  static RowSmallest start() { return {kInfinity}; }
  template <int kPacks, int kPack>
  void take(const float (&x)[kPacks][kPack], int held) {
    for_held(x, held, [&](float each) { total = minimum(total, each); });
  }
  void merge(const RowSmallest& other) { total = minimum(total, other.total); }
};

/// Mean and sum of squares from it, of windows in two passes each: a small variance far from zero
/// is not lost.
struct RowSpread {
  VarianceState<float> seen;
  static RowSpread start() { return {VarianceState<float>::start()}; }
  template <int kPacks, int kPack>
  void take(const float (&x)[kPacks][kPack], int held) {
    VarianceState<float> window = {float(held * kPack), 0.0f, 0.0f};
    for_held(x, held, [&](float each) { window.mean += each; });
    window.mean /= window.count;
    for_held(x, held,
             [&](float each) { window.total += (each - window.mean) * (each - window.mean); });
    seen.merge(window);
  }
  void merge(const RowSpread& other) { seen.merge(other.seen); }
};

/// The largest element, and the sum of all exponentials from it.
struct RowExponentials {
  float top, total;
  static RowExponentials start() { return {-kInfinity, 0.0f}; }
  template <int kPacks, int kPack>
  void take(const float (&x)[kPacks][kPack], int held) {
    float most = top;
    for_held(x, held, [&](float each) { most = maximum(most, each); });
    total *= share(top, most);
    top = most;
    for_held(x, held, [&](float each) { total += share(each, top); });
  }
  void merge(const RowExponentials& other) {
    const float most = maximum(top, other.top);
    total = total * share(top, most) + other.total * share(other.top, most);
    top = most;
  }

 private:
  // Nothing but -infinity has been seen so far where that is the largest.
  static float share(float x, float most) {
    return most == -kInfinity ? 0.0f : exponential(x - most);
  }
};

/// The state of all kAlong threads of each of kAcross rows, for every one of them. `shared` has one
/// for every thread.
template <int kAcross, int kAlong, class State>
inline State merged(State state, State* shared) {
  merge_threads<kAcross, kAlong>(state, shared);
  if constexpr (kAlong > 1) {
    __syncthreads();
    state = shared[threadIdx.x % kAcross];
  }
  return state;
}

/// The same of the states that the blocks of a row left behind, `rows` apart.
template <int kAcross, int kAlong, class State>
inline State merged_blocks(const State* partial, int blocks, int rows, State* shared) {
  State state = State::start();
  for (int k = threadIdx.x / kAcross; k < blocks; k += kAlong) state.merge(partial[k * rows]);
  return merged<kAcross, kAlong>(state, shared);
}

}  // namespace tensor::device

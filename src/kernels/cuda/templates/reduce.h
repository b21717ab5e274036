// What has been seen so far of the elements that one number is made of. States hold plain numbers,
// so that they can lie in shared and global memory; merge() takes what another thread has seen.
#pragma once

#include "numbers.h"

namespace tensor::device {

template <class A>
struct SumState {
  A total;
  static SumState start() { return {A(0)}; }
  template <class T>
  void take(T x, int) {
    total = plus(total, convert<A>(x));
  }
  void merge(const SumState& other) { total = plus(total, other.total); }
};

template <class A>
struct ProductState {
  A total;
  static ProductState start() { return {A(1)}; }
  template <class T>
  void take(T x, int) {
    total = times(total, convert<A>(x));
  }
  void merge(const ProductState& other) { total = times(total, other.total); }
};

struct AnyState {
  bool total;
  static AnyState start() { return {false}; }
  template <class T>
  void take(T x, int) {
    total = total || x != T(0);
  }
  void merge(const AnyState& other) { total = total || other.total; }
};

struct AllState {
  bool total;
  static AllState start() { return {true}; }
  template <class T>
  void take(T x, int) {
    total = total && x != T(0);
  }
  void merge(const AllState& other) { total = total && other.total; }
};

/// The largest element, or the smallest, and its first place; the first NaN beats every number.
template <class T, bool kAbove>
struct ExtremeState {
  T total;
  int place;  // -1 before the first element
  static ExtremeState start() { return {T(0), -1}; }
  static bool beats(T x, T best) {
    return (kAbove ? x > best : x < best) || (x != x && best == best);
  }
  void take(T x, int at) {
    if (place >= 0 && !beats(x, total)) return;
    total = x;
    place = at;
  }
  void merge(const ExtremeState& other) {
    if (other.place < 0) return;
    if (place >= 0 && !beats(other.total, total) &&
        (beats(total, other.total) || place < other.place))
      return;
    *this = other;
  }
};

/// Sums of squares from a running mean (Welford; merged as by Chan, Golub and LeVeque): a small
/// variance far from zero is not lost.
template <class A>
struct VarianceState {
  A count, mean, total;
  static VarianceState start() { return {A(0), A(0), A(0)}; }
  template <class T>
  void take(T x, int) {
    const A value = convert<A>(x), away = value - mean;
    count += 1;
    mean += away / count;
    total += away * (value - mean);
  }
  void merge(const VarianceState& other) {
    if (other.count == 0) return;
    const A both = count + other.count, away = other.mean - mean;
    mean += away * (other.count / both);
    total += other.total + away * away * (count * (other.count / both));
    count = both;
  }
};

/// Merges the states of the threads kAcross apart into those of the first kAcross threads.
template <int kAcross, int kAlong, class State>
inline void merge_threads(State& state, State* shared) {
  const int x = threadIdx.x % kAcross, y = threadIdx.x / kAcross;
  if constexpr (kAlong > 1) {
    shared[threadIdx.x] = state;
    for (int half = kAlong / 2; half > 0; half /= 2) {
      __syncthreads();
      if (y < half) {
        state.merge(shared[(y + half) * kAcross + x]);
        shared[threadIdx.x] = state;
      }
    }
  }
}

}  // namespace tensor::device

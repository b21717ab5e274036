// Sorting lines: pieces of a line in shared memory, then sorted runs that are merged two by two.
// Elements are told apart by their places, so that any order of work is stable.
#pragma once

#include "numbers.h"

namespace tensor::device {

inline constexpr int kNowhere = 0x7fffffff;  // the place of what fills up a piece, behind all else

/// Keys and places are of one width, so that elements have no gaps.
template <class Number, int kBytes>
struct Sorted {
  using Key = int;
  using Place = int;
};
template <class Number>
struct Sorted<Number, 4> {
  using Key = Number;
  using Place = int;
};
template <class Number>
struct Sorted<Number, 8> {
  using Key = Number;
  using Place = i64;
};
/// Of elements of the type T in memory.
template <class T>
using SortKey = typename Sorted<Compute<T>, sizeof(Compute<T>)>::Key;

template <class Key>
struct Placed {
  Key key;
  typename Sorted<Key, sizeof(Key)>::Place place;
};

/// NaN counts as the largest number.
template <class Key>
inline bool is_less(Key a, Key b) {
  return a < b || (b != b && a == a);
}

template <bool kDescending, class Key>
inline bool precedes(const Placed<Key>& a, const Placed<Key>& b) {
  if (a.place == kNowhere || b.place == kNowhere) return a.place < b.place;
  if (is_less(a.key, b.key)) return !kDescending;
  if (is_less(b.key, a.key)) return kDescending;
  return a.place < b.place;
}

/// Sorts kCount elements, a power of two (Batcher's bitonic network). All threads of the block call
/// it, and may read the result.
template <bool kDescending, int kCount, int kThreads, class Key>
inline void sort_piece(Placed<Key>* piece) {
  for (int size = 2; size <= kCount; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < kCount / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const Placed<Key> first = piece[low], second = piece[high];
        if (precedes<kDescending>(second, first) == ((low & size) == 0)) {
          piece[low] = second;
          piece[high] = first;
        }
      }
    }
  __syncthreads();
}

/// How many of the `count` elements of a sorted run precede one that is not among them.
template <bool kDescending, class Key>
inline int rank_in(const Placed<Key>* run, int count, const Placed<Key>& x) {
  int low = 0;
  while (low < count) {
    const int middle = low + (count - low) / 2;
    if (precedes<kDescending>(run[middle], x))
      low = middle + 1;
    else
      count = middle;
  }
  return low;
}

/// The place of element `at` of a line of `length`, whose runs of `run` elements, a power of two,
/// are sorted, among those of its run and the next one, or the one before.
template <bool kDescending, class Key>
inline int merged_place(const Placed<Key>* line, int length, int run, int at) {
  const int own = at & ~(run - 1), begin = own & ~run;
  const int other = own == begin ? begin + run : begin;
  const int count = other >= length ? 0 : other + run > length ? length - other : run;
  return begin + (at - own) + rank_in<kDescending>(line + other, count, line[at]);
}

}  // namespace tensor::device

// What a place of a resized image's axis is made of: the taps of src/ops/resize.cpp, calculated
// from whole numbers, so that no weight is off by more than a
// few units in the last place of a float.
#pragma once

#include "numbers.h"

namespace tensor::device {

inline int clamped(int place, int extent) {
  return place < 0 ? 0 : place >= extent ? extent - 1 : place;
}

// ---- Axes: an `extent` that taps are kept in; the extents `from` and `to` that say where places
// come from; `down`, by which that is divided.

/// What numerators are divided by: places of the result's corners, or of its pixels' middles, in
/// halves.
template <bool kCorners>
inline constexpr int denominator_of(int to) {
  return !kCorners ? 2 * to : to > 1 ? to - 1 : 1;
}

/// An axis whose extents are all known.
template <int kFrom, int kTo, bool kCorners>
struct FixedAxis {
  static constexpr int extent = kFrom, from = kFrom, to = kTo, down = denominator_of<kCorners>(kTo);
  static constexpr int kPlaces = kTo;  // that say all that can be said of a place
};
/// Any axis that is enlarged by a known factor, without corners: 1 becomes kTo.
template <int kTo>
struct EnlargedAxis {
  int extent;
  static constexpr int from = 1, to = kTo, down = denominator_of<false>(kTo);
  static constexpr int kPlaces = 8 * kTo;
};
struct AnyAxis {
  int extent, from, to;
  Divisor down;
};

/// The place numerator / down of the input that a place of the result comes from.
template <bool kCorners, class Axis>
inline constexpr int numerator_of(Axis axis, int place) {
  if constexpr (kCorners)
    return axis.to > 1 ? place * (axis.from - 1) : 0;
  else
    return (2 * place + 1) * axis.from - axis.to;
}

/// Of an axis that keeps its extent.
struct SameTaps {
  explicit SameTaps(int place) : place_(place) {}
  static constexpr int count() { return 1; }
  int place(int) const { return place_; }
  float weight(int) const { return 1; }

 private:
  int place_;
};

/// PyTorch's "nearest", the rounding of its float product included.
template <class Axis>
struct NearestTaps {
  NearestTaps(const Axis& axis, int place) {
    const float scale = float(axis.from) / float(axis.to);
    const int below = int(floorf(float(place) * scale));
    place_ = axis.to == 2 * axis.from ? place / 2 : below < axis.from ? below : axis.from - 1;
  }
  static constexpr int count() { return 1; }
  int place(int) const { return place_; }
  float weight(int) const { return 1; }

 private:
  int place_;
};

template <class Axis, bool kCorners>
struct LinearTaps {
  LinearTaps(const Axis& axis, int place) : extent_(axis.extent) {
    const int numerator = numerator_of<kCorners>(axis, place);
    const int positive = numerator > 0 ? numerator : 0;
    below_ = positive / axis.down;
    rest_ = float(positive % axis.down) * (1.0f / float(int(axis.down)));
  }
  static constexpr int count() { return 2; }
  int place(int i) const { return clamped(below_ + i, extent_); }
  float weight(int i) const { return i == 0 ? 1 - rest_ : rest_; }

 private:
  int extent_, below_;
  float rest_;
};

/// Of kRun neighbours from a multiple of kRun on, eight at most: all columns that any of them is
/// made of, and which those are. The axis is fixed or enlarged.
template <class Axis, bool kCorners, int kRun>
struct LinearRun {
  static constexpr int kDown = Axis::down;
  static constexpr int numerator(int place) { return numerator_of<kCorners>(Axis{}, place); }
  static constexpr int kStep =
      numerator_of<kCorners>(Axis{}, 1) - numerator_of<kCorners>(Axis{}, 0);
  // As numerators may be negative, one more is added before they are divided.
  static constexpr int below(int place) { return (numerator(place) + kDown) / kDown - 1; }
  static constexpr int rest(int place) { return (numerator(place) + kDown) % kDown; }
  static constexpr int count() {
    int most = 0;
    for (int place = 0; place + kRun <= Axis::kPlaces; place += kRun) {
      const int columns = below(place + kRun - 1) - below(place) + 2;
      most = columns > most ? columns : most;
    }
    return most;
  }
  // Whether all runs begin alike: the compiler then knows all weights.
  static constexpr bool kAlike = kRun * kStep % kDown == 0;

  LinearRun(const Axis& axis, int place)
      : extent_(axis.extent), below_(below(place)), rest_(rest(kAlike ? 0 : place)) {}
  int place(int column) const { return clamped(below_ + column, extent_); }
  bool reaches(int column, int i) const {
    const int away = distance(column, i);
    return -kDown <= away && away < kDown;
  }
  float weight(int column, int i) const {
    const int away = distance(column, i);
    return float(kDown - (away < 0 ? -away : away)) * (1.0f / kDown);
  }

 private:
  int distance(int column, int i) const {
    constexpr int kRest = (numerator_of<kCorners>(Axis{}, 0) + kDown) % kDown;
    return (kAlike ? kRest : rest_) + i * kStep - column * kDown;
  }
  int extent_, below_, rest_;
};

/// Keys' cubic convolution kernel at a distance (IEEE Trans. ASSP 29(6), 1981), in factors: nothing
/// is lost near its zeros at 1 and 2.
inline float cubic(float distance, float a) {
  const float x = fabsf(distance);
  if (x < 1) return (x - 1) * (((a + 2) * x - 1) * x - 1);
  if (x < 2) return a * (x - 1) * (x - 2) * (x - 2);
  return 0;
}

template <class Axis, bool kCorners>
struct CubicTaps {
  CubicTaps(const Axis& axis, int place) : extent_(axis.extent) {
    const int down = axis.down, numerator = numerator_of<kCorners>(axis, place);
    below_ = numerator >= 0 ? numerator / axis.down : -((down - 1 - numerator) / axis.down);
    rest_ = float(numerator - below_ * down) * (1.0f / float(down));
  }
  static constexpr int count() { return 4; }
  int place(int i) const { return clamped(below_ + i - 1, extent_); }
  float weight(int i) const { return cubic(rest_ - float(i - 1), -0.75f); }

 private:
  int extent_, below_;
  float rest_;
};

/// Pillow's filters: widened by the scale when shrinking, cut off at the edges and normalised. The
/// axis is one without corners.
template <class Axis, bool kCubic>
struct AntialiasedTaps {
  // Everything counts in halves of a place of the result: 2 `to` of them are one of the input.
  AntialiasedTaps(const Axis& of, int place) : axis(of) {
    centre_ = (2 * place + 1) * axis.from;
    const int begin = centre_ - support() + axis.to, end = centre_ + support() + axis.to;
    first_ = begin > 0 ? begin / axis.down : 0;
    const int last = end / axis.down;
    last_ = last < axis.from ? last : axis.from;
    float total = 0;
    for (int i = 0; i < count(); ++i) total += filter(i);
    scale_ = 1 / total;
  }
  // That many reach a place at most.
  int count() const { return 2 * support() / axis.down + 2; }
  int place(int i) const { return clamped(first_ + i, axis.extent); }
  float weight(int i) const { return filter(i) * scale_; }

 private:
  int wide() const { return axis.from > axis.to ? axis.from : axis.to; }
  int support() const { return (kCubic ? 4 : 2) * wide(); }
  float filter(int i) const {
    if (first_ + i >= last_) return 0;
    const int away = 2 * axis.to * (first_ + i) + axis.to - centre_;
    const float distance = float(away) * (0.5f / float(wide()));
    if constexpr (kCubic) return cubic(distance, -0.5f);
    const float left = 1 - fabsf(distance);
    return left > 0 ? left : 0;
  }
  const Axis& axis;
  int centre_, first_, last_;
  float scale_;
};

/// The samples of a cell of a box along an axis of an image, as src/ops/roi_align.cpp has them:
/// those from `first` on, before `last`, may meet it. `low` and `high` are the box's ends, kRatio
/// samples are in a cell, or, where that is 0, as many as pixels.
template <class A, int kCells, int kRatio, bool kAligned>
struct CellSamples {
  static constexpr int kMost = 1 << 24;
  CellSamples(A low, A high, int place, int extent) : extent_(extent) {
    A length = high - low;
    if (!kAligned && length < A(1)) length = A(1);
    const A cell = length / A(kCells);
    int count = kRatio;
    if (kRatio == 0 && cell > A(0)) count = int(round_up(cell < A(kMost) ? cell : A(kMost)));
    begin_ = low + cell * A(place);
    step_ = cell / A(count);
    weight = A(1) / A(count);
    if (!is_finite(begin_) || !is_finite(cell)) return;
    last = count;
    if (!(step_ > A(0)) || count == 0) return;
    first = at_least(A(-1), count) - 1;
    if (first < 0) first = 0;
    const int end = at_least(A(extent), count) + 2;
    if (end < count) last = end;
  }
  /// Whether sample i meets the image, and then the two pixels around it: this much of the second.
  bool find(int i, int (&pixels)[2], A& rest) const {
    const A at = begin_ + (A(i) + A(0.5)) * step_;
    if (!(at >= A(-1) && at <= A(extent_))) return false;
    const A top = A(extent_ - 1), inside = at < A(0) ? A(0) : at < top ? at : top;
    pixels[0] = clamped(int(inside), extent_);
    pixels[1] = clamped(pixels[0] + 1, extent_);
    rest = inside - round_down(inside);
    return true;
  }
  int first = 0, last = 0;
  A weight;

 private:
  int at_least(A place, int count) const {
    const A i = round_up((place - begin_) / step_ - A(0.5));
    return i < A(0) ? 0 : i < A(count) ? int(i) : count;
  }
  int extent_;
  A begin_, step_;
};

}  // namespace tensor::device

// What a place of a resized image's axis is made of: the taps of src/ops/resize.cpp, calculated
// from whole numbers, so that no weight is off by more than a
// few units in the last place of a float.
#pragma once

#include "numbers.h"

namespace tensor::device {

inline int clamped(int place, int extent) {
  return place < 0 ? 0 : place >= extent ? extent - 1 : place;
}

/// Of an axis that keeps its extent.
struct SameTaps {
  static constexpr int kCount = 1;
  explicit SameTaps(int place) : place_(place) {}
  int place(int) const { return place_; }
  float weight(int) const { return 1; }

 private:
  int place_;
};

/// PyTorch's "nearest", the rounding of its float product included.
template <int kFrom, int kTo>
struct NearestTaps {
  static constexpr int kCount = 1;
  explicit NearestTaps(int place) {
    constexpr float kScale = float(kFrom) / float(kTo);
    const int below = int(floorf(float(place) * kScale));
    place_ = kTo == 2 * kFrom ? place / 2 : below < kFrom ? below : kFrom - 1;
  }
  int place(int) const { return place_; }
  float weight(int) const { return 1; }

 private:
  int place_;
};

/// The place numerator() / kDenominator of the input that a place of the result comes from.
template <int kFrom, int kTo, bool kCorners>
struct SourcePlace {
  static constexpr int kDenominator = !kCorners ? 2 * kTo : kTo > 1 ? kTo - 1 : 1;
  static constexpr int numerator(int place) {
    if constexpr (kCorners)
      return kTo > 1 ? place * (kFrom - 1) : 0;
    else
      return (2 * place + 1) * kFrom - kTo;
  }
};

template <int kFrom, int kTo, bool kCorners>
struct LinearTaps {
  using Source = SourcePlace<kFrom, kTo, kCorners>;
  static constexpr int kCount = 2;
  explicit LinearTaps(int place) {
    const int numerator = Source::numerator(place), positive = numerator > 0 ? numerator : 0;
    below_ = positive / Source::kDenominator;
    rest_ = float(positive % Source::kDenominator) * (1.0f / Source::kDenominator);
  }
  int place(int i) const { return clamped(below_ + i, kFrom); }
  float weight(int i) const { return i == 0 ? 1 - rest_ : rest_; }

 private:
  int below_;
  float rest_;
};

/// Of kRun neighbours from a multiple of kRun on: all columns that any of them is made of, and
/// which those are.
template <int kFrom, int kTo, bool kCorners, int kRun>
struct LinearRun {
  using Source = SourcePlace<kFrom, kTo, kCorners>;
  static constexpr int kDown = Source::kDenominator;
  static constexpr int kStep = Source::numerator(1) - Source::numerator(0);
  // As numerators may be negative, one more is added before they are divided.
  static constexpr int below(int place) { return (Source::numerator(place) + kDown) / kDown - 1; }
  static constexpr int rest(int place) { return (Source::numerator(place) + kDown) % kDown; }
  static constexpr int count() {
    int most = 0;
    for (int place = 0; place + kRun <= kTo; place += kRun) {
      const int columns = below(place + kRun - 1) - below(place) + 2;
      most = columns > most ? columns : most;
    }
    return most;
  }
  static constexpr int kCount = count();
  // Whether all runs begin alike: the compiler then knows all weights.
  static constexpr bool kAlike = kRun * kStep % kDown == 0;
  static constexpr int kRest = rest(0);

  explicit LinearRun(int place) : below_(below(place)), rest_(kAlike ? kRest : rest(place)) {}
  int place(int column) const { return clamped(below_ + column, kFrom); }
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
    return (kAlike ? kRest : rest_) + i * kStep - column * kDown;
  }
  int below_, rest_;
};

/// Keys' cubic convolution kernel at a distance (IEEE Trans. ASSP 29(6), 1981), in factors: nothing
/// is lost near its zeros at 1 and 2.
inline float cubic(float distance, float a) {
  const float x = fabsf(distance);
  if (x < 1) return (x - 1) * (((a + 2) * x - 1) * x - 1);
  if (x < 2) return a * (x - 1) * (x - 2) * (x - 2);
  return 0;
}

template <int kFrom, int kTo, bool kCorners>
struct CubicTaps {
  using Source = SourcePlace<kFrom, kTo, kCorners>;
  static constexpr int kCount = 4;
  explicit CubicTaps(int place) {
    constexpr int kDown = Source::kDenominator;
    const int numerator = Source::numerator(place);
    below_ = numerator >= 0 ? numerator / kDown : -((kDown - 1 - numerator) / kDown);
    rest_ = float(numerator - below_ * kDown) * (1.0f / kDown);
  }
  int place(int i) const { return clamped(below_ + i - 1, kFrom); }
  float weight(int i) const { return cubic(rest_ - float(i - 1), -0.75f); }

 private:
  int below_;
  float rest_;
};

/// Pillow's filters: widened by the scale when shrinking, cut off at the edges and normalised.
template <int kFrom, int kTo, bool kCubic>
struct AntialiasedTaps {
  // Everything counts in halves of a place of the result: 2 kTo of them are one of the input.
  static constexpr int kWide = kFrom > kTo ? kFrom : kTo;
  static constexpr int kSupport = (kCubic ? 4 : 2) * kWide;
  static constexpr int kCount = kSupport / kTo + 2;
  explicit AntialiasedTaps(int place) {
    centre_ = (2 * place + 1) * kFrom;
    const int begin = centre_ - kSupport + kTo, end = (centre_ + kSupport + kTo) / (2 * kTo);
    first_ = begin > 0 ? begin / (2 * kTo) : 0;
    last_ = end < kFrom ? end : kFrom;
    float total = 0;
    for (int i = 0; i < kCount; ++i) total += filter(i);
    scale_ = 1 / total;
  }
  int place(int i) const { return clamped(first_ + i, kFrom); }
  float weight(int i) const { return filter(i) * scale_; }

 private:
  float filter(int i) const {
    if (first_ + i >= last_) return 0;
    const int away = 2 * kTo * (first_ + i) + kTo - centre_;
    const float distance = float(away) * (0.5f / kWide);
    if constexpr (kCubic) return cubic(distance, -0.5f);
    const float left = 1 - fabsf(distance);
    return left > 0 ? left : 0;
  }
  int centre_, first_, last_;
  float scale_;
};

}  // namespace tensor::device

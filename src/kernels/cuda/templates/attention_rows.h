// What kernels of attention do between their two products, whatever instructions these are: the
// scores of two rows of queries become exponentials. They lie as sums do (fragments.h), so that
// four lanes share such rows.
#pragma once

#include "fragments.h"
#include "numbers.h"

namespace tensor::device {

/// Two results that are neighbours in a row, by the epilogue.
template <class Epilogue>
void store_results(const Epilogue& epilogue, float first, float second, int row, int feature) {
  typename Epilogue::Inputs in, next;
  epilogue.load_pair(in, next, row, feature);
  epilogue.store_pair(Epilogue::finish(first, in), Epilogue::finish(second, next), row, feature);
}

/// The same rounded to bytes, the first one lowest.
template <class Epilogue>
u32 two_bytes(const Epilogue& epilogue, float first, float second, int row, int feature) {
  typename Epilogue::Inputs in, next;
  epilogue.load_pair(in, next, row, feature);
  const int low = Epilogue::finish(first, in).y0, high = Epilogue::finish(second, next).y0;
  return (low & 0xff) | (high & 0xff) << 8;
}

/// S names the schedule: Element of the second product's left operand, kBlock: keys of a block,
/// kWhole: it has all of them, kLeastLeft: how many the last block has at least, kMiddle: something
/// is done to scaled scores before the softmax. P is the problem: kQueries, kBlocks of keys, kLeft
/// of which the last one has, kScale (times log2(e) unless there is a middle). Middle changes a
/// score. `score(unit, i)` is the score in element i of columns 8 unit and following.
template <class S, class P, class Middle>
struct AttentionRows {
  static constexpr int kUnits = S::kBlock / 8;  // of eight columns

  float top[2];    // the largest score so far: of no middle, times kScale
  float total[2];  // the sum of exponentials

  /// Of the lanes that share the rows: `both` of all their numbers.
  template <class Both>
  static float over_row(float x, const Both& both) {
#pragma unroll
    for (int bit = 0; bit < 5; ++bit)
      if (kWarpSums.lane[bit].row == 0) x = both(x, __shfl_xor_sync(0xffffffffu, x, 1 << bit));
    return x;
  }

  /// What comes before the softmax, and nothing where there are no keys: in the last block's last
  /// columns. `query`: the first of the two rows.
  template <class Score>
  static void settle(Score&& score, const P& problem, const Middle& middle, int block, int batch,
                     int query) {
    constexpr int kLeast = S::kLeastLeft;
    const bool is_last = S::kWhole || block + 1 == problem.kBlocks;
    if (!S::kMiddle && (!is_last || kLeast == S::kBlock)) return;
    const int column = place_of_lane(threadIdx.x % 32).column;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!S::kMiddle && 8 * unit + 8 <= kLeast) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place p = kWarpSums.of_element(i);
        const int place = 8 * unit + column + p.column;
        const bool is_key = 8 * unit + 8 <= kLeast || !is_last || place < problem.kLeft;
        float& x = score(unit, i);
        if constexpr (S::kMiddle) {
          const int q = query + p.row;
          typename Middle::Inputs in{};
          if (is_key && q < problem.kQueries)
            middle.load(in, batch * problem.kQueries + q, block * S::kBlock + place);
          x = Middle::staged(Middle::finish(x * P::kScale, in));
        }
        if (!is_key) x = -kInfinity;
      }
    }
  }

  static constexpr float kLog2e = 1.4426950408889634f;
  /// A difference of scores as a power of two.
  static float scaled(float difference) { return S::kMiddle ? difference * kLog2e : difference; }

  /// Scores become exponentials, packed as the left operand. Returns by what the sums so far are to
  /// be multiplied.
  template <class Score>
  void soften(Score&& score, u32 (&p)[kUnits * 2], bool is_first, float (&factor)[2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = score(0, 2 * r);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
        for (int i = 0; i < 2; ++i) most = fmaxf(most, score(unit, 2 * r + i));
      most = over_row(most, [](float x, float y) { return fmaxf(x, y); });
      if (!S::kMiddle) most *= P::kScale;
      if (!is_first) most = fmaxf(most, top[r]);
      // Of rows without any score but minus infinity nothing may be subtracted.
      const float subtracted = most == -kInfinity ? 0.0f : most;
      factor[r] = is_first ? 0.0f : exp2_approximate(scaled(top[r] - subtracted));
      top[r] = most;
      float sum = 0;
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& x = score(unit, 2 * r + i);
          x = exp2_approximate(S::kMiddle ? (x - subtracted) * kLog2e
                                          : fmaf(x, P::kScale, -subtracted));
          sum += x;
        }
      total[r] = is_first ? sum : fmaf(total[r], factor[r], sum);
    }
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        p[2 * unit + r] = S::Element::pair(score(unit, 2 * r), score(unit, 2 * r + 1));
  }

  /// By what sums of different keys are to be multiplied before they are added, of these tops.
  template <int kParts>
  static void join(const float (&tops)[kParts], float (&factors)[kParts]) {
    float most = tops[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) most = fmaxf(most, tops[i]);
    const float subtracted = most == -kInfinity ? 0.0f : most;
#pragma unroll
    for (int i = 0; i < kParts; ++i) factors[i] = exp2_approximate(scaled(tops[i] - subtracted));
  }

  /// By what the finished sums are to be multiplied.
  void finish(float (&factor)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) factor[r] = 1.0f / whole(total[r]);
  }
  /// The sum of a row's exponentials.
  static float whole(float total) {
    return over_row(total, [](float x, float y) { return x + y; });
  }
};

}  // namespace tensor::device

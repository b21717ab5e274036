// What kernels of attention do between their two products, whatever instructions these are: the
// scores of two rows of queries, eight apart, become exponentials. Four lanes share such rows; each
// has two of every eight columns of both, as operand d of mma and of wgmma lies.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// S names the schedule: Element of the second product's left operand, kBlock: keys of a block,
/// kMiddle: something is done to scaled scores before the softmax. P is the problem: kQueries,
/// kKeys, kScale (times log2(e) unless there is a middle). Middle changes a score.
/// `score(unit, i)` is the score in element i of columns 8 unit and following.
template <class S, class P, class Middle>
struct AttentionRows {
  static constexpr int kBlocks = (P::kKeys + S::kBlock - 1) / S::kBlock;
  static constexpr int kUnits = S::kBlock / 8;  // of eight columns

  float top[2];    // the largest score so far: of no middle, times kScale
  float total[2];  // the sum of exponentials

  static float across(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }

  /// What comes before the softmax, and nothing where there are no keys: in the last block's last
  /// columns. `query`: the first of the two rows.
  template <class Score>
  static void settle(Score&& score, const Middle& middle, int block, int batch, int query) {
    constexpr int kLeft = P::kKeys - (kBlocks - 1) * S::kBlock;  // keys of the last block
    const bool is_last = block + 1 == kBlocks;
    if (!S::kMiddle && (!is_last || kLeft == S::kBlock)) return;
    const int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      if (!S::kMiddle && 8 * unit + 8 <= kLeft) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int place = 8 * unit + column + i % 2;
        const bool is_key = 8 * unit + 8 <= kLeft || !is_last || place < kLeft;
        float& x = score(unit, i);
        if constexpr (S::kMiddle) {
          const int q = query + i / 2 * 8;
          typename Middle::Inputs in{};
          if (is_key && q < P::kQueries)
            middle.load(in, batch * P::kQueries + q, block * S::kBlock + place);
          x = Middle::staged(Middle::finish(x * P::kScale, in));
        }
        if (!is_key) x = -kInfinity;
      }
    }
  }

  /// Scores become exponentials, packed as the left operand. Returns by what the sums so far are to
  /// be multiplied.
  template <class Score>
  void soften(Score&& score, u32 (&p)[kUnits * 2], bool is_first, float (&factor)[2]) {
    constexpr float kLog2e = 1.4426950408889634f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = score(0, 2 * r);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
        for (int i = 0; i < 2; ++i) most = fmaxf(most, score(unit, 2 * r + i));
      most = fmaxf(most, across(most, 1));
      most = fmaxf(most, across(most, 2));
      if (!S::kMiddle) most *= P::kScale;
      if (!is_first) most = fmaxf(most, top[r]);
      // Of rows without any score but minus infinity nothing may be subtracted.
      const float subtracted = most == -kInfinity ? 0.0f : most;
      factor[r] = is_first     ? 0.0f
                  : S::kMiddle ? exp2_approximate((top[r] - subtracted) * kLog2e)
                               : exp2_approximate(top[r] - subtracted);
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

  /// By what the finished sums are to be multiplied.
  void finish(float (&factor)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = total[r];
      sum += across(sum, 1);
      sum += across(sum, 2);
      factor[r] = 1.0f / sum;
    }
  }
};

}  // namespace tensor::device

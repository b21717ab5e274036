// What an epilogue reads and writes for the elements of a tile that one lane has.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// S, P and Epilogue as in gemm_sm90.h. kWholeTokens: no tile reaches beyond the last token.
template <class S, class P, class Epilogue, bool kWholeTokens>
struct GemmPairs {
  using Inputs = typename Epilogue::Inputs;
  using Outputs = typename Epilogue::Outputs;

  const P& problem;
  const Epilogue& epilogue;

  // Eight columns of a warpgroup's 64 rows are four elements of each lane: a pair of columns of one
  // row, then of the row eight further down.
  struct Pair {
    int before;          // rows of the batches before the pair's
    int token, feature;  // of the pair
    int end;             // of the tile's tokens
    bool has_token(int more) const { return kWholeTokens || token + more < end; }
    int row(int more) const { return before + token + more; }
  };
  bool has_feature(const Pair& c, int more) const {
    return S::kWholeFeatures || c.feature + more < problem.kFeatures;
  }

  void read(Inputs (&in)[4], const Pair& c) const {
    if constexpr (S::kFeatureInputs && !S::kSwapped && S::kPairs) {
      if (has_feature(c, 0)) epilogue.load_pair(in[0], in[1], c.row(0), c.feature);
      in[2] = in[0], in[3] = in[1];
      return;
    }
    for_each(
        c, S::kFeatureInputs,
        [&](int i, int row, int feature) { epilogue.load(in[i], row, feature); },
        [&](int i, int row, int feature) { epilogue.load_pair(in[i], in[i + 1], row, feature); });
  }
  void write(const Outputs (&out)[4], const Pair& c) const {
    for_each(
        c, false, [&](int i, int row, int feature) { epilogue.store(out[i], row, feature); },
        [&](int i, int row, int feature) {
          epilogue.store_pair(out[i], out[i + 1], row, feature);
        });
  }

 private:
  // one(i, row, feature) for each of the four elements there are, or, of neighbouring features,
  // two(i, row, feature) for the elements i and i + 1. `any_token`: of tokens beyond the last, too.
  template <class One, class Two>
  void for_each(const Pair& c, bool any_token, const One& one, const Two& two) const {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const int down = 4 * i;
      if constexpr (S::kSwapped) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if ((any_token || c.has_token(j)) && has_feature(c, down))
            one(i + j, c.row(j), c.feature + down);
      } else if constexpr (S::kPairs) {
        if (c.has_token(down) && has_feature(c, 0)) two(i, c.row(down), c.feature);
      } else {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (c.has_token(down) && has_feature(c, j)) one(i + j, c.row(down), c.feature + j);
      }
    }
  }
};

}  // namespace tensor::device

// What becomes of the sums of a tile of gemm_sm90.h: the epilogue finishes them in registers, and
// stores them, or they are laid out in shared memory as boxes, which the tensor memory accelerator
// stores.
#pragma once

#include "boxes.h"
#include "fragments.h"
#include "gemm_pairs.h"
#include "row_sums.h"

namespace tensor::device {

/// S, P and Epilogue as in gemm_sm90.h.
template <class S, class P, class Epilogue>
struct GemmResults {
  static constexpr int kColumns = S::kSwapped ? S::kTokens : S::kFeatures;  // of wgmma
  static constexpr int kSums = kColumns / 2;  // of each of S::kBlocks, a thread
  static constexpr bool kWide = S::kBlocks * kColumns > 256;

  // The columns that a block finishes: all, or, of a split tile, its share.
  static constexpr int kMyColumns = (kColumns / 8 + S::kSplits - 1) / S::kSplits * 8;
  static constexpr bool kUneven = kMyColumns * S::kSplits > kColumns;

  static constexpr bool kWholeTokens = S::kWholeTokens && !kUneven;

  // Boxes are panels of 64 rows of 128 bytes: of tokens, or, swapped, of 64 features of each of the
  // tile's tokens. While one is stored the next is filled.
  static constexpr int kRowBytes = 128;
  static constexpr int kPanelColumns = kRowBytes / sizeof(typename S::Output);
  static constexpr int kPanels = S::kSwapped ? 1 : (kColumns + kPanelColumns - 1) / kPanelColumns;
  static constexpr int kPanelRows = S::kSwapped ? kMyColumns : 64;
  static constexpr int kOfGroup = kPanels * S::kBlocks;  // panels
  // An addend's panels are asked for that long before they are needed.
  static constexpr int kMostBuffers = S::kAddend ? 4 : 2;
  static constexpr int kBuffers = !S::kStaged               ? 0
                                  : kOfGroup < kMostBuffers ? kOfGroup
                                                            : kMostBuffers;
  static constexpr u32 kBufferBytes = (kPanelRows * kRowBytes + 1023) / 1024 * 1024;
  // Behind the panels: of features as rows, each warp's part of the sums of each token.
  static constexpr u32 kPartsAt = S::kGroups * kBuffers * kBufferBytes;
  static constexpr int kPartFloats = S::kRowSums && S::kSwapped ? 2 * kMyColumns : 0;
  static constexpr u32 kBytes = kPartsAt + S::kGroups * 4 * kPartFloats * sizeof(float);
  static constexpr int kBarriers = S::kAddend ? S::kGroups * kBuffers : 0;
  static constexpr u32 kGroupBarrier = 1;  // the named one of the first group

  static_assert(S::kSwapped || !S::kStaged || kColumns % kPanelColumns == 0, "whole boxes");
  static_assert(!S::kSwapped || kPanelColumns == 64 || !S::kStaged);
  static_assert(!S::kAddend || (S::kStaged && !S::kSwapped));
  static_assert(!S::kRowSums || S::kFeatures % kSummed == 0);

  using Inputs = typename Epilogue::Inputs;
  using Outputs = typename Epilogue::Outputs;
  using Output = typename S::Output;
  using Pairs = GemmPairs<S, P, Epilogue, kWholeTokens>;
  using Pair = typename Pairs::Pair;

  struct Tile {
    int batch, token, feature;
    const float* statistics = nullptr;  // of its tokens, known once they are multiplied
  };
  using Turn = RingTurn<kBuffers>;  // the stage is the buffer that a group fills next

  const P& problem;
  const TensorMap &outputs, &addends;
  const Epilogue& epilogue;
  unsigned char* memory;  // kBytes of shared memory
  u32 address, barriers;  // where that is, and where kBarriers are

  static bool speaks() { return threadIdx.x % 128 == 0; }
  static u32 buffer_at(int group, int buffer) { return (group * kBuffers + buffer) * kBufferBytes; }
  u32 arrived(int group, int buffer) const { return barriers + 8 * (group * kBuffers + buffer); }

  void start() const {
    for (int i = 0; i < kBarriers; ++i) barrier_init(barriers + 8 * i, 1);
  }

  // The lane's place among 64 rows and eight columns.
  static Place my_place() {
    constexpr Fragment kSums = kGroupSums;  // a constant here is less code than the one outside
    return kSums.of_lane(threadIdx.x % 128);
  }
  Pair pair_at(const Tile& tile, int row, int column) const {
    const Place mine = my_place();
    const int r = row + mine.row, c = column + mine.column;
    const int end = min(problem.kTokens, tile.token + S::kTokens);
    const int before = tile.batch * problem.kTokens;
    return S::kSwapped ? Pair{before, tile.token + c, tile.feature + r, end}
                       : Pair{before, tile.token + r, tile.feature + c, end};
  }

  // The first column that this block finishes.
  static int my_column() { return S::kSplits > 1 ? int(cluster_rank()) * kMyColumns : 0; }

  // ---- Panels. The accelerator exchanges the 16-byte chunks of each eight rows.

  static u32 chunk_at(int row, int chunk) { return row * kRowBytes + ((chunk ^ row % 8) << 4); }
  // The lane's pair of columns `column` and the next, `down` rows below its own.
  Output* pair_in(u32 panel, int column, int down) const {
    const Place mine = my_place();
    const int byte = (column + mine.column) * sizeof(Output);
    return reinterpret_cast<Output*>(memory + panel + chunk_at(mine.row + down, byte / 16) +
                                     byte % 16);
  }

  // A group's panel `number` of the addend, from now on on its way.
  void fetch(const Tile& tile, int group, int row, int number, int buffer) const {
    const u32 barrier = arrived(group, buffer);
    barrier_expect(barrier, kPanelRows * kRowBytes);
    load_box(address + buffer_at(group, buffer), addends, barrier,
             problem
                 .addends(tile.feature + number % kPanels * kPanelColumns,
                          tile.token + row + number / kPanels * 64, tile.batch)
                 .axes);
  }
  // Before a tile's products: the first panels of the addend. `row`: the group's in the tile.
  void prepare(const Tile& tile, int group, int row, const Turn& turn) const {
    if constexpr (S::kAddend)
      if (speaks()) {
        wait_for_previous();
        store_wait_read();
        for (int i = 0; i < kBuffers; ++i) fetch(tile, group, row, i, (turn.stage + i) % kBuffers);
      }
  }

  // Until the buffer may be filled; it has the addend then, if there is one.
  void await_panel(int group, const Turn& turn) const {
    if constexpr (S::kAddend) {
      barrier_wait(arrived(group, turn.stage), turn.parity);
    } else if constexpr (S::kStaged) {
      if (speaks()) store_wait_read<kBuffers - 1>();
      named_barrier(kGroupBarrier + group, 128);
    }
  }
  // What the group has laid out as its panel `number` leaves.
  void release_panel(const Tile& tile, int group, int row, int number, const Turn& turn) const {
    fence_for_copies();
    named_barrier(kGroupBarrier + group, 128);
    if (!speaks()) return;
    const int feature = number % kPanels * kPanelColumns, down = row + number / kPanels * 64;
    store_box(
        outputs, address + buffer_at(group, turn.stage),
        (S::kSwapped ? problem.outputs(tile.feature + down, tile.token + my_column(), tile.batch)
                     : problem.outputs(tile.feature + feature, tile.token + down, tile.batch))
            .axes);
    store_commit();
    // The panel before this one has left by now.
    const int next = number - 1 + kBuffers;
    if constexpr (S::kAddend)
      if (number > 0 && next < kOfGroup) {
        store_wait_read<1>();
        fetch(tile, group, row, next, (turn.stage + kBuffers - 1) % kBuffers);
      }
  }

  // ---- Sums.

  // Mean and deviation of the two tokens of a pair.
  static void load_statistics(float (&to)[4], const Tile& tile, const Pair& pair) {
    const float* const from = tile.statistics + 2 * (pair.token - tile.token);
    if constexpr (S::kSwapped) {
      load_pack<4>(to, from);
    } else {
      float pairs[2][2];
      load_pack<2>(pairs[0], from);
      load_pack<2>(pairs[1], from + 2 * 8);
      to[0] = pairs[0][0], to[1] = pairs[0][1], to[2] = pairs[1][0], to[3] = pairs[1][1];
    }
  }
  static float corrected(float sum, const Inputs& in, const float* statistics, float scale) {
    if constexpr (Epilogue::kScales)
      return sum * scale;
    else if constexpr (S::kNormalizes)
      return statistics[1] * (sum - statistics[0] * in.column_sum) + in.shift;
    else
      return sum;
  }

  // Scales of the two rows of wgmma, or of the two columns, of a pair, where there are any.
  void load_scales(float (&to)[2], const Pair& c, bool are_rows) const {
    if constexpr (Epilogue::kScales)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int more = are_rows ? 8 * i : i;
        if (are_rows != S::kSwapped)
          to[i] = c.has_token(more) ? epilogue.row_scale(c.row(more)) : 0;
        else
          to[i] = Pairs{problem, epilogue}.has_feature(c, more)
                      ? epilogue.column_scale(c.feature + more)
                      : 0;
      }
  }

  // ---- Sums of the rows that leave, by 64 features: row_sums.h.

  // Sum and squares so far: of tokens as rows of the lane's two, of features as rows of four.
  using RowSums = float[8];

  void store_row_sum(const Tile& tile, int token, int feature, int which, float sum) const {
    const int end = min(problem.kTokens, tile.token + S::kTokens);
    if (token >= end || feature >= problem.kFeatures) return;
    const int row = tile.batch * problem.kTokens + token;
    const int rows = problem.kBatches * problem.kTokens;
    epilogue.row_sums[(i64(feature / kSummed) * rows + row) * 2 + which] = sum;
  }

  // An element of the four of unit `unit`, eight columns, to what it belongs to: of features as
  // rows [unit][token][which], of sixteen columns.
  static void add_to_sums(float (&sums)[8], int unit, int i, const Outputs& out) {
    const float x = Epilogue::summed(out);
    const int at = S::kSwapped ? 4 * unit + i % 2 * 2 : i / 2 * 2;
    sums[at] += x, sums[at + 1] += x * x;
  }
  // Of features as rows: those of each warp's 16 features, into shared memory.
  template <bool kWhole>
  void put_parts(const float (&sums)[8], int column_of_panel, int group) const {
    // The lane gets the sum of its row's number.
    const Place mine = place_of_lane(threadIdx.x % 32);
    const float sum = scattered_sum<8, 4>(sums);
    const int column = column_of_panel + mine.row / 4 * 8 + mine.column + mine.row / 2 % 2;
    if (kWhole || mine.row < 4)
      parts_of(group, threadIdx.x % 128 / 32)[2 * column + mine.row % 2] = sum;
  }
  float* parts_of(int group, int warp) const {
    return reinterpret_cast<float*>(memory + kPartsAt) + (group * 4 + warp) * kPartFloats;
  }

  // Of tokens as rows: 64 features that end with those before column `end` of the tile.
  void store_token_sums(const Tile& tile, int row, int end, RowSums& sums) const {
    const int place = place_of_lane(threadIdx.x % 128).column / 2;
    const int token = tile.token + row + my_place().row + place / 2 * 8;
    store_row_sum(tile, token, tile.feature + end - kSummed, place % 2,
                  scattered_sum<4, 1>({sums[0], sums[1], sums[2], sums[3]}));
#pragma unroll
    for (float& sum : sums) sum = 0;
  }
  // Of features as rows: the 64 of the group's block that begins at `row` of the tile.
  void store_feature_sums(const Tile& tile, int group, int row) const {
    for (int i = threadIdx.x % 128; i < kPartFloats; i += 128) {
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < 4; ++warp) sum += parts_of(group, warp)[i];
      store_row_sum(tile, tile.token + my_column() + i / 2, tile.feature + row, i % 2, sum);
    }
  }

  // With most registers full of sums there are none for more of the epilogue's inputs, but for
  // those that all tokens share.
  static constexpr bool kReadsAhead = !kWide || S::kFeatureInputs;

  // Sixteen columns, or the last eight, of a block's sums (floats, or exact ones, which are rounded
  // here): finished, written by the epilogue, and put into the panel.
  template <bool kWhole, class Sum>
  void finish(const Sum* sums, Inputs (&in)[2][4], const float (&row_scales)[2],
              const float (&scales)[2][2], const Tile& tile, int group, int row, int column,
              int column_of_panel, u32 panel, RowSums& row_sums) const {
    u32 pairs[4] = {};
#pragma unroll
    for (int unit = 0; unit < (kWhole ? 2 : 1); ++unit) {
      const int at = column_of_panel + 8 * unit;
      if constexpr (S::kAddend) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          float addend[2];
          load_pack<2>(addend, pair_in(panel, at, 4 * i));
          Epilogue::take(in[unit][i], addend[0]);
          Epilogue::take(in[unit][i + 1], addend[1]);
        }
      }
      Outputs out[4];
      const Pair pair = pair_at(tile, row, column + 8 * unit);
      float statistics[4] = {};
      if constexpr (S::kNormalizes) load_statistics(statistics, tile, pair);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        out[i] = Epilogue::finish(corrected(float(sums[4 * unit + i]), in[unit][i],
                                            statistics + 2 * (S::kSwapped ? i % 2 : i / 2),
                                            row_scales[i / 2] * scales[unit][i % 2]),
                                  in[unit][i]);
      if constexpr (S::kRowSums)
#pragma unroll
        for (int i = 0; i < 4; ++i) add_to_sums(row_sums, unit, i, out[i]);
      Pairs{problem, epilogue}.write(out, pair);
      if constexpr (S::kStaged && sizeof(Output) != 2) {
#pragma unroll
        for (int i = 0; i < 4; i += 2)
          store_pack<2>(pair_in(panel, at, 4 * i),
                        {Epilogue::staged(out[i]), Epilogue::staged(out[i + 1])});
      } else if constexpr (S::kStaged) {
        pairs[2 * unit] = Output::pair(Epilogue::staged(out[0]), Epilogue::staged(out[1]));
        pairs[2 * unit + 1] = Output::pair(Epilogue::staged(out[2]), Epilogue::staged(out[3]));
      }
    }
    if constexpr (kPartFloats > 0) {
      put_parts<kWhole>(row_sums, column_of_panel, group);
#pragma unroll
      for (float& sum : row_sums) sum = 0;
    }
    if constexpr (S::kStaged && sizeof(Output) == 2) {
      // Lane i names row i % 8 of matrix i / 8: the warp's upper and lower rows, then those of the
      // next eight columns.
      const int lane = threadIdx.x % 32;
      const int r = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8;
      const int c = column_of_panel + lane / 16 * 8;
      if constexpr (S::kSwapped) {
        const u32 to = address + panel + chunk_at(c + lane % 8, r / 8);
        if constexpr (kWhole)
          store_matrices_transposed(to, pairs);
        else
          store_matrices_transposed(to, pairs[0], pairs[1]);
      } else {
        store_matrices(address + panel + chunk_at(r + lane % 8, c / 8), pairs);
      }
    }
  }

  // A panel's columns from `first` on, 16 at a time; what the epilogue reads for the next comes
  // meanwhile, unless it is `ready`.
  template <int kCount, class Sum>
  void finish_panel(const Sum* sums, const Tile& tile, int group, int row, int first, u32 panel,
                    const Inputs (*ready)[4], RowSums& row_sums) const {
    constexpr int kChunks = (kCount + 15) / 16;
    Inputs in[2][2][4] = {};
    float row_scales[2] = {}, scales[2][2][2] = {};
    load_scales(row_scales, pair_at(tile, row, first), true);
    const auto read_chunk = [&](int chunk, Inputs(&to)[2][4], float(&scales_to)[2][2]) {
#pragma unroll
      for (int unit = 0; unit < 2; ++unit) {
        if (16 * chunk + 8 * unit >= kCount) continue;
        load_scales(scales_to[unit], pair_at(tile, row, first + 16 * chunk + 8 * unit), false);
        if constexpr (S::kReadFirst) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            to[unit][i] = ready[S::kFeatureInputs ? 0 : 2 * chunk + unit][i];
        } else {
          Pairs{problem, epilogue}.read(to[unit],
                                        pair_at(tile, row, first + 16 * chunk + 8 * unit));
        }
      }
    };
    if (kReadsAhead) read_chunk(0, in[0], scales[0]);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int next = kReadsAhead ? chunk + 1 : chunk;
      if (next < kChunks) read_chunk(next, in[next % 2], scales[next % 2]);
      const int column = first + 16 * chunk;
      if (16 * chunk + 16 <= kCount)
        finish<true>(sums + 8 * chunk, in[chunk % 2], row_scales, scales[chunk % 2], tile, group,
                     row, column, 16 * chunk, panel, row_sums);
      else
        finish<false>(sums + 8 * chunk, in[chunk % 2], row_scales, scales[chunk % 2], tile, group,
                      row, column, 16 * chunk, panel, row_sums);
      if constexpr (S::kRowSums && !S::kSwapped)
        if ((column + 16) % kSummed == 0) store_token_sums(tile, row, column + 16, row_sums);
    }
  }

  // Of the epilogue's inputs what is read before the products.
  static constexpr int kReadUnits = S::kReadFirst && !S::kFeatureInputs ? kMyColumns / 8 : 1;
  using Ready = Inputs[S::kBlocks][kReadUnits][4];
  static_assert(!S::kReadFirst || S::kSwapped);

  void read_first(Ready& ready, const Tile& tile, int row) const {
    if constexpr (S::kReadFirst) {
      if (!S::kFeatureInputs) wait_for_previous();
#pragma unroll
      for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
        for (int unit = 0; unit < kReadUnits; ++unit)
          Pairs{problem, epilogue}.read(ready[block][unit],
                                        pair_at(tile, row + 64 * block, my_column() + 8 * unit));
    }
  }

  // All sums of a group, whose rows begin at `row` of the tile.
  template <int kNumber = 0, class Sum>
  void finish_all(const Sum (&sums)[S::kBlocks][kSums], const Tile& tile, int group, int row,
                  Turn& turn, const Ready& ready, RowSums& row_sums) const {
    constexpr int kBlock = kNumber / kPanels, kFirst = kPanelColumns * (kNumber % kPanels);
    constexpr int kLeft = kMyColumns - kFirst;
    constexpr int kCount = S::kSwapped || kLeft < kPanelColumns ? kLeft : kPanelColumns;
    await_panel(group, turn);
    if constexpr (kPartFloats > 0 && !S::kStaged) named_barrier(kGroupBarrier + group, 128);
    finish_panel<kCount>(sums[kBlock] + kFirst / 2, tile, group, row + 64 * kBlock,
                         my_column() + kFirst, buffer_at(group, turn.stage), ready[kBlock],
                         row_sums);
    if constexpr (S::kStaged) {
      release_panel(tile, group, row, kNumber, turn);
      turn.next();
    } else if constexpr (kPartFloats > 0) {
      named_barrier(kGroupBarrier + group, 128);
    }
    if constexpr (kPartFloats > 0) store_feature_sums(tile, group, row + 64 * kBlock);
    if constexpr (kNumber + 1 < kOfGroup)
      finish_all<kNumber + 1>(sums, tile, group, row, turn, ready, row_sums);
  }
};

}  // namespace tensor::device

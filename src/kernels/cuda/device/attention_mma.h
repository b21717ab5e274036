// softmax(scale q k + ...) v with mma.sync, on every GPU with Tensor Cores: a warp holds the scores
// of 16 queries, or of several times 16, in registers, which become the left operand of the second
// product (Dao, FlashAttention-2, 2023). Where all keys fit into one block, the softmax is exact in
// one pass; otherwise it is kept up from block to block. Keys and values come by cp.async, or
// before sm_80 through registers.
#pragma once

#include "attention_rows.h"
#include "fragments.h"
#include "gemm_tile.h"
#include "mma.h"

namespace tensor::device {

/// S names the schedule:
///   Element of queries, keys and values
///   kWarps of a block, kSlabs of 16 queries that each of them has
///   kBlock: keys of a block; kStages: blocks in shared memory, one only where there is one block
///   or kIsAsync is not set
///   kIsAsync: there is cp.async, and mma of 16 of depth
///   kKept: queries stay in registers from block to block
///   kMiddle: something is done to scaled scores before the softmax
/// P is the problem: kQueries, kKeys, kDepth, kFeatures, kBatches, kScale (times log2(e) unless
/// there is a middle), and the factors Queries, Keys and Values, whose rows are queries or keys.
/// Middle changes a score, Epilogue stores a result.
template <class S, class P, class Middle, class Epilogue>
struct AttentionMma {
  using Element = typename S::Element;
  using Rows = AttentionRows<S, P, Middle>;
  static constexpr int kThreads = 32 * S::kWarps;
  static constexpr int kTile = 16 * S::kSlabs * S::kWarps;  // queries of a block
  static constexpr int kTiles = (P::kQueries + kTile - 1) / kTile;
  static constexpr int kBlocks = Rows::kBlocks, kUnits = Rows::kUnits;
  static constexpr int kSteps = (P::kDepth + 15) / 16;     // of the depth of the first product
  static constexpr int kPairs = (P::kFeatures + 15) / 16;  // of units of eight features
  static constexpr int kResults = P::kFeatures / 8;        // such units
  static constexpr int kPad = 8;  // 16 bytes, so that eight rows of ldmatrix meet in no bank
  template <class Factor, int kRows, int kWidth>
  using TileOf = FactorTile<Factor, Element, kRows, kWidth, kThreads, false, 8, kPad>;
  using QueryTile = TileOf<typename P::Queries, kTile, 16 * kSteps>;
  using KeyTile = TileOf<typename P::Keys, S::kBlock, 16 * kSteps>;
  using ValueTile = TileOf<typename P::Values, S::kBlock, 16 * kPairs>;
  static constexpr int kStageBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kSharedBytes = QueryTile::kBytes + S::kStages * kStageBytes;
  static constexpr int kAhead = S::kStages > 1 ? S::kStages - 1 : 1;  // blocks on their way
  static_assert(S::kBlock % 16 == 0 && P::kFeatures % 8 == 0);
  static_assert(S::kStages > 1 ? S::kIsAsync : !S::kIsAsync || kBlocks == 1);

  const Element *queries, *keys, *values;
  const Middle& middle;
  const Epilogue& epilogue;
  unsigned char* memory;
  int batch, first;  // of the block's queries

  Element* queries_at() const { return reinterpret_cast<Element*>(memory); }
  Element* keys_at(int stage) const {
    return reinterpret_cast<Element*>(memory + QueryTile::kBytes + stage * kStageBytes);
  }
  Element* values_at(int stage) const {
    return reinterpret_cast<Element*>(memory + QueryTile::kBytes + stage * kStageBytes +
                                      KeyTile::kBytes);
  }
  static int own_query() { return threadIdx.x / 32 * (16 * S::kSlabs); }  // of the tile

  template <class Tile>
  static void load(Element* to, const Element* from, int row) {
    if constexpr (S::kIsAsync)
      Tile::copy_later(shared_address(to), from, row, 0);
    else
      Tile::copy_now(to, from, row, 0);
  }
  // Two groups of copies, which come in this order.
  void load_block(int block, int stage) const {
    const bool is_there = block < kBlocks;
    if (is_there) load<KeyTile>(keys_at(stage), keys, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
    if (is_there) load<ValueTile>(values_at(stage), values, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
  }

  using Scores = float[S::kSlabs][kUnits][4];
  using Sums = float[S::kSlabs][kResults][4];
  using Exponentials = u32[S::kSlabs][kUnits * 2];
  static constexpr int kKeptSteps = S::kKept ? kSteps : 1;
  using Queries = u32[S::kSlabs][kKeptSteps][4];

  void load_queries(Queries& q, int place, int step) const {
    const Place of_a = ldmatrix_row_of_a(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < S::kSlabs; ++i)
      load_matrices(q[i][place],
                    shared_address(queries_at() + QueryTile::place(own_query() + 16 * i + of_a.row,
                                                                   16 * step + of_a.column)));
  }

  void multiply_scores(Scores& s, Queries& q, int stage) const {
    const Place of_b = ldmatrix_row_of_b(threadIdx.x % 32);
    const Element* tile = keys_at(stage);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int place = S::kKept ? step : 0;
      if constexpr (!S::kKept) load_queries(q, 0, step);
        // Two units of keys: eight of depth, the next eight, then those of the next eight keys.
#pragma unroll
      for (int pair = 0; pair < kUnits / 2; ++pair) {
        u32 b[4];
        load_matrices(b, shared_address(
                             tile + KeyTile::place(16 * pair + of_b.row, 16 * step + of_b.column)));
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            multiply_step<Element, S::kIsAsync>(s[i][2 * pair + j], q[i][place], b[2 * j],
                                                b[2 * j + 1], 16 * step + 8 < P::kDepth);
      }
    }
  }

  void multiply_values(Sums& sums, const Exponentials& p, int stage) const {
    const Place of_b = ldmatrix_row_of_a(threadIdx.x % 32);  // values lie turned
    const Element* tile = values_at(stage);
#pragma unroll
    for (int step = 0; step < S::kBlock / 16; ++step)
    // Two units of features: eight keys, the next eight, then those of the next eight features.
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        u32 b[4];
        load_matrices_transposed(
            b,
            shared_address(tile + ValueTile::place(16 * step + of_b.row, 16 * pair + of_b.column)));
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i) {
          const u32 a[4] = {p[i][4 * step], p[i][4 * step + 1], p[i][4 * step + 2],
                            p[i][4 * step + 3]};
#pragma unroll
          for (int j = 0; j < 2; ++j)
            if (2 * pair + j < kResults)
              multiply_step<Element, S::kIsAsync>(sums[i][2 * pair + j], a, b[2 * j], b[2 * j + 1]);
        }
      }
  }

  void write(const Sums& sums, const Rows (&rows)[S::kSlabs]) const {
    const Place mine = place_of_lane(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < S::kSlabs; ++i) {
      float factor[2];
      rows[i].finish(factor);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int query = first + own_query() + 16 * i + mine.row + kWarpSums.of_element(2 * r).row;
        if (query >= P::kQueries) continue;
#pragma unroll
        for (int unit = 0; unit < kResults; ++unit)
          epilogue.store_pair(Epilogue::finish(sums[i][unit][2 * r] * factor[r], {}),
                              Epilogue::finish(sums[i][unit][2 * r + 1] * factor[r], {}),
                              batch * P::kQueries + query, 8 * unit + mine.column);
      }
    }
  }

  void attend() const {
    load<QueryTile>(queries_at(), queries, first);
    if constexpr (S::kIsAsync)
      for (int i = 0; i < kAhead; ++i) load_block(i, i);
    Sums sums = {};
    Rows rows[S::kSlabs];
    Queries q;
#pragma unroll 1
    for (int block = 0, stage = 0; block < kBlocks; ++block) {
      if constexpr (S::kIsAsync) {
        copy_wait<2 * kAhead - 1>();
        __syncthreads();  // these keys are there, and all have left the block before them
        load_block(block + kAhead, stage == 0 ? S::kStages - 1 : stage - 1);
      } else {
        if (block > 0) __syncthreads();
        load_block(block, 0);
        __syncthreads();
      }
      if (S::kKept && block == 0)
#pragma unroll
        for (int step = 0; step < kKeptSteps; ++step) load_queries(q, step, step);
      Exponentials p;
      float factor[S::kSlabs][2];
      {
        Scores s = {};
        multiply_scores(s, q, stage);
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i) {
          const auto score = [&](int unit, int k) -> float& { return s[i][unit][k]; };
          Rows::settle(score, middle, block, batch,
                       first + own_query() + 16 * i + place_of_lane(threadIdx.x % 32).row);
          rows[i].soften(score, p[i], block == 0, factor[i]);
        }
      }
      if constexpr (S::kIsAsync) {
        copy_wait<2 * kAhead>();
        __syncthreads();
      }
      if (kBlocks > 1 && block > 0)
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i)
#pragma unroll
          for (int k = 0; k < 4 * kResults; ++k) sums[i][k / 4][k % 4] *= factor[i][k % 4 / 2];
      multiply_values(sums, p, stage);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
    launch_next();
    write(sums, rows);
  }

  static void run(const Element* queries, const Element* keys, const Element* values,
                  const Middle& middle, const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int batch = static_cast<int>(blockIdx.x) / kTiles;
    const int first = static_cast<int>(blockIdx.x) % kTiles * kTile;
    const AttentionMma attention{queries + P::Queries::at(batch),
                                 keys + P::Keys::at(batch),
                                 values + P::Values::at(batch),
                                 middle,
                                 epilogue,
                                 memory,
                                 batch,
                                 first};
    wait_for_previous();
    attention.attend();
  }
};

}  // namespace tensor::device

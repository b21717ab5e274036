// softmax(scale q k + ...) v with mma.sync, on every GPU with Tensor Cores: a warp holds the scores
// of 16 queries, or of several times 16, in registers, which become the left operand of the second
// product (Dao, FlashAttention-2, 2023). Where all keys fit into one block, the softmax is exact in
// one pass; otherwise it is kept up from block to block.
#pragma once

#include "attention_rows.h"
#include "attention_scores.h"

namespace tensor::device {

/// S names the schedule as for AttentionScores, and
///   kStages: blocks in shared memory, one only where there is one block or kIsAsync is not set
///   kMiddle: something is done to scaled scores before the softmax
/// P is the problem: also kFeatures, kScale (times log2(e) unless there is a middle), and the
/// factor Values, whose rows are keys, too; kQueries, kTiles of them in a batch, and what
/// AttentionRows names. Middle changes a score, Epilogue stores a result.
template <class S, class P, class Middle, class Epilogue>
struct AttentionMma {
  using Element = typename S::Element;
  using First = AttentionScores<S, P>;  // of the two products
  using Rows = AttentionRows<S, P, Middle>;
  static constexpr int kThreads = First::kThreads, kTile = First::kTile;
  static constexpr int kUnits = Rows::kUnits;
  static constexpr int kPairs = (P::kFeatures + 15) / 16;  // of units of eight features
  static constexpr int kResults = P::kFeatures / 8;        // such units
  using QueryTile = typename First::QueryTile;
  using KeyTile = typename First::KeyTile;
  using ValueTile = typename First::template TileOf<typename P::Values, S::kBlock, 16 * kPairs>;
  static constexpr int kStageBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kSharedBytes = QueryTile::kBytes + S::kStages * kStageBytes;
  static constexpr int kAhead = S::kStages > 1 ? S::kStages - 1 : 1;  // blocks on their way
  static_assert(P::kFeatures % 8 == 0);
  static_assert(S::kStages > 1 ? S::kIsAsync : !S::kIsAsync || S::kWhole);

  const P& problem;
  FactorMemory<typename P::Queries> queries;
  FactorMemory<typename P::Keys> keys;
  FactorMemory<typename P::Values> values;
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

  int blocks() const { return S::kWhole ? 1 : problem.kBlocks; }

  // Two groups of copies, which come in this order.
  void load_block(int block, int stage) const {
    const bool is_there = block < blocks();
    if (is_there) First::template load<KeyTile>(keys_at(stage), keys, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
    if (is_there) First::template load<ValueTile>(values_at(stage), values, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
  }

  using Sums = float[S::kSlabs][kResults][4];
  using Exponentials = u32[S::kSlabs][kUnits * 2];

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
        const int query =
            first + First::own_query() + 16 * i + mine.row + kWarpSums.of_element(2 * r).row;
        if (query >= problem.kQueries) continue;
#pragma unroll
        for (int unit = 0; unit < kResults; ++unit)
          store_results(epilogue, sums[i][unit][2 * r] * factor[r],
                        sums[i][unit][2 * r + 1] * factor[r], batch * problem.kQueries + query,
                        8 * unit + mine.column);
      }
    }
  }

  void attend() const {
    First::template load<QueryTile>(queries_at(), queries, first);
    if constexpr (S::kIsAsync)
      for (int i = 0; i < kAhead; ++i) load_block(i, i);
    Sums sums = {};
    Rows rows[S::kSlabs];
    typename First::Queries q;
#pragma unroll 1
    for (int block = 0, stage = 0; block < blocks(); ++block) {
      if constexpr (S::kIsAsync) {
        copy_wait<2 * kAhead - 1>();
        __syncthreads();  // these keys are there, and all have left the block before them
        load_block(block + kAhead, stage == 0 ? S::kStages - 1 : stage - 1);
      } else {
        if (block > 0) __syncthreads();
        load_block(block, 0);
        __syncthreads();
      }
      if (S::kKept && block == 0) First::keep_queries(q, queries_at());
      Exponentials p;
      float factor[S::kSlabs][2];
      {
        typename First::Scores s = {};
        First::multiply(s, q, queries_at(), keys_at(stage));
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i) {
          const auto score = [&](int unit, int k) -> float& { return s[i][unit][k]; };
          Rows::settle(score, problem, middle, block, batch,
                       first + First::own_query() + 16 * i + place_of_lane(threadIdx.x % 32).row);
          rows[i].soften(score, p[i], block == 0, factor[i]);
        }
      }
      if constexpr (S::kIsAsync) {
        copy_wait<2 * kAhead>();
        __syncthreads();
      }
      if (!S::kWhole && block > 0)
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

  static void run(const P& problem, const FactorMemory<typename P::Queries>& queries,
                  const FactorMemory<typename P::Keys>& keys,
                  const FactorMemory<typename P::Values>& values, const Middle& middle,
                  const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int batch = static_cast<int>(blockIdx.x / problem.kTiles);
    const int first = static_cast<int>(blockIdx.x % problem.kTiles) * kTile;
    const AttentionMma attention{problem,
                                 queries.matrix(batch),
                                 keys.matrix(batch),
                                 values.matrix(batch),
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

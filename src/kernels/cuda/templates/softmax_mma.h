// softmax(scale q k + ...) with mma.sync, on every GPU with Tensor Cores: the scores stay in
// registers. Also on Hopper, for storing the result takes longer than any instruction multiplies.
// Where all keys fit into one block, there is one pass; otherwise a first one finds maximum and sum
// of each row (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), and a
// second one multiplies again.
#pragma once

#include "attention_rows.h"
#include "attention_scores.h"

namespace tensor::device {

/// S names the schedule as for AttentionScores, and
///   kStages: blocks in shared memory, one only where there is one block or kIsAsync is not set
///   kMiddle: something is done to scaled scores before the softmax
///   kPairs: the number of keys is even
/// P is the problem: also kKeys, kScale (times log2(e) unless there is a middle), kQueries, kTiles
/// of them in a batch, kWholeQueries and kWholeKeys where no tile reaches beyond the last, and what
/// AttentionRows names.
/// Middle changes a score, Epilogue stores what becomes of a weight.
template <class S, class P, class Middle, class Epilogue>
struct SoftmaxMma {
  using Element = typename S::Element;
  using Product = AttentionScores<S, P>;
  using Rows = AttentionRows<S, P, Middle>;
  using QueryTile = typename Product::QueryTile;
  using KeyTile = typename Product::KeyTile;
  static constexpr int kThreads = Product::kThreads, kTile = Product::kTile;
  static constexpr int kUnits = Rows::kUnits;
  static constexpr int kAhead = S::kStages > 1 ? S::kStages - 1 : 1;  // blocks on their way
  static_assert(S::kStages > 1 ? S::kIsAsync : !S::kIsAsync || S::kWhole);

  // Weights change lanes on their way out, in 16 rows by 32 columns of a warp, so that lanes side
  // by side store neighbours: lanes of a product have eight columns of eight rows together.
  static constexpr int kColumns = 32, kPitch = kColumns + 8;  // floats
  static constexpr int kLanes = kColumns / 2;                 // of a row
  static constexpr int kWarpBytes = 16 * kPitch * sizeof(float);
  static constexpr int kTileBytes = QueryTile::kBytes + S::kStages * KeyTile::kBytes;
  static constexpr int kSharedBytes = kTileBytes + S::kWarps * kWarpBytes;

  struct Whole {  // the weights of a block of keys as a tile of GemmTile
    static constexpr int kRows = kTile, kColumns = S::kBlock, kParts = 1;
    static constexpr bool kPairs = S::kPairs;
  };
  struct Result {
    int kRows, kFeatures;
    static constexpr bool kWholeRows = P::kWholeQueries, kWholeFeatures = P::kWholeKeys;
  };
  using Tile = GemmTile<Whole, Result, Epilogue>;

  const P& problem;
  FactorMemory<typename P::Queries> queries;
  FactorMemory<typename P::Keys> keys;
  const Middle& middle;
  const Epilogue& epilogue;
  unsigned char* memory;
  int batch, first;  // of the block's queries

  Element* queries_at() const { return reinterpret_cast<Element*>(memory); }
  Element* keys_at(int stage) const {
    return reinterpret_cast<Element*>(memory + QueryTile::kBytes + stage * KeyTile::kBytes);
  }
  int blocks() const { return S::kWhole ? 1 : problem.kBlocks; }
  int turns() const { return S::kWhole ? 1 : 2 * problem.kBlocks; }  // blocks of all passes
  int block_of(int turn) const { return turn < blocks() ? turn : turn - blocks(); }
  void load_keys(int turn, int stage) const {
    if (turn < turns())
      Product::template load<KeyTile>(keys_at(stage), keys, block_of(turn) * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
  }

  template <class Score>
  void store(Score&& score, const float (&factor)[2], int query, int first_key) const {
    const int lane = threadIdx.x % 32;
    const Place mine = place_of_lane(lane);
    const Result result{problem.kQueries, problem.kKeys};
    const Tile tile{result};
    float* staged = reinterpret_cast<float*>(memory + kTileBytes + threadIdx.x / 32 * kWarpBytes);
#pragma unroll
    for (int begin = 0; begin < kUnits; begin += kColumns / 8) {
      __syncwarp();  // other lanes may still read what came before
#pragma unroll
      for (int unit = begin; unit < begin + kColumns / 8; ++unit) {
        if (unit >= kUnits) continue;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float pair[2] = {score(unit, 2 * r) * factor[r],
                                 score(unit, 2 * r + 1) * factor[r]};
          store_pack<2>(staged + (mine.row + kWarpSums.of_element(2 * r).row) * kPitch +
                            8 * (unit - begin) + mine.column,
                        pair);
        }
      }
      __syncwarp();
      const int column = lane % kLanes * 2, key = first_key + 8 * begin + column;
      if (8 * begin + column >= S::kBlock || !tile.has_feature(key)) continue;
#pragma unroll
      for (int row = lane / kLanes; row < 16; row += 32 / kLanes) {
        if (!tile.has_row(query + row)) continue;
        float pair[2];
        load_pack<2>(pair, staged + row * kPitch + column);
        tile.template finish_sums<1, 2>(epilogue, pair, batch * problem.kQueries + query + row,
                                        key);
      }
    }
  }

  void compute() const {
    Product::template load<QueryTile>(queries_at(), queries, first);
    if constexpr (S::kIsAsync)
      for (int i = 0; i < kAhead; ++i) load_keys(i, i);
    Rows rows[S::kSlabs];
    typename Product::Queries q;
#pragma unroll 1
    for (int turn = 0, stage = 0; turn < turns(); ++turn) {
      if constexpr (S::kIsAsync) {
        copy_wait<kAhead - 1>();
        __syncthreads();  // these keys are there, and all have left the block before them
        load_keys(turn + kAhead, stage == 0 ? S::kStages - 1 : stage - 1);
      } else {
        if (turn > 0) __syncthreads();
        load_keys(turn, 0);
        __syncthreads();
      }
      if (S::kKept && turn == 0) Product::keep_queries(q, queries_at());
      if (turn + 1 == turns()) launch_next();
      typename Product::Scores s = {};
      Product::multiply(s, q, queries_at(), keys_at(stage));
      const int block = block_of(turn);
#pragma unroll
      for (int i = 0; i < S::kSlabs; ++i) {
        const int query = first + Product::own_query() + 16 * i;
        const auto score = [&](int unit, int k) -> float& { return s[i][unit][k]; };
        Rows::settle(score, problem, middle, block, batch,
                     query + place_of_lane(threadIdx.x % 32).row);
        // In the second pass maximum and sum are known already: what is found again is dropped.
        Rows found = rows[i];
        u32 packed[kUnits * 2];
        float factor[2];
        found.soften(score, packed, turn == 0, factor);
        if (turn < blocks()) rows[i] = found;
        if (turn + blocks() < turns()) continue;
        rows[i].finish(factor);
        store(score, factor, query, block * S::kBlock);
      }
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
  }

  static void run(const P& problem, const FactorMemory<typename P::Queries>& queries,
                  const FactorMemory<typename P::Keys>& keys, const Middle& middle,
                  const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int batch = static_cast<int>(blockIdx.x / problem.kTiles);
    const int first = static_cast<int>(blockIdx.x % problem.kTiles) * kTile;
    const SoftmaxMma softmax{
        problem, queries.matrix(batch), keys.matrix(batch), middle, epilogue, memory, batch, first};
    wait_for_previous();
    softmax.compute();
  }
};

}  // namespace tensor::device

// softmax(scale q k + ...) v in float32 on the ordinary cores: lanes of a warp have squares of the
// scores of its queries, and of their results, in registers. Between the two products a warp's
// weights go through its own part of shared memory, where they turn over. Slices of warps share the
// keys of a block, so that few queries keep many warps busy; what they found is joined in the end.
#pragma once

#include "gemm_tile.h"
#include "plain_warp.h"

namespace tensor::device {

/// What happens to a warp's scores between the products. S names the schedule: kRows queries and
/// kKeys of a warp, kBlock keys of all slices, kWhole: they are all keys, kMiddle: something is
/// done to scaled scores before the softmax. P is the problem: kQueries, kBlocks of keys, kLeft of
/// which the last one has, kScale (times log2(e) unless there is a middle). Scores is the warp's
/// PlainWarp, Middle changes a score.
template <class S, class P, class Middle, class Scores>
struct PlainRows {
  static constexpr int kDown = S::kRows / Scores::kLanesDown;  // rows of a lane
  static constexpr int kAcross = S::kKeys / Scores::kLanesAcross;

  float top[kDown];    // the largest score so far: of no middle, times kScale
  float total[kDown];  // the sum of exponentials of this lane's keys

  PlainRows() {
#pragma unroll
    for (int i = 0; i < kDown; ++i) top[i] = -kInfinity, total[i] = 0;
  }

  static constexpr float kLog2e = 1.4426950408889634f;
  /// Two to the power of a difference of scores, where no middle has left this to do.
  static float power(float difference) {
    return exp2_approximate(S::kMiddle ? difference * kLog2e : difference);
  }
  /// What may be subtracted: of rows without any score but minus infinity nothing.
  static float subtracted(float top) { return top == -kInfinity ? 0.0f : top; }

  /// What comes before the softmax, and nothing where there are no keys. `query`, `key`: the warp's
  /// first, of the block, and `there` of the keys there are.
  static void settle(Scores& scores, const P& problem, const Middle& middle, int row, int query,
                     int key, int there) {
    if (!S::kMiddle && there >= S::kKeys) return;
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const int down = Scores::near_row(i), across = Scores::near_column(j);
        float& x = scores.sums[i][j];
        if constexpr (S::kMiddle) {
          typename Middle::Inputs in{};
          if (across < there && query + down < problem.kQueries)
            middle.load(in, row + down, key + across);
          x = Middle::staged(Middle::finish(x * P::kScale, in));
        }
        if (across >= there) x = -kInfinity;
      }
  }

  /// Scores become exponentials. Returns by what the sums so far are to be multiplied.
  void soften(Scores& scores, float (&factor)[kDown]) {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      float(&row)[kAcross] = scores.sums[i];
      float most = row[0];
#pragma unroll
      for (int j = 1; j < kAcross; ++j) most = fmaxf(most, row[j]);
      most = Scores::over_row(most, [](float x, float y) { return fmaxf(x, y); });
      if (!S::kMiddle) most *= P::kScale;
      most = fmaxf(most, top[i]);
      const float less = subtracted(most);
      factor[i] = power(top[i] - less);
      top[i] = most;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        row[j] = S::kMiddle ? power(row[j] - less) : power(fmaf(row[j], P::kScale, -less));
        sum += row[j];
      }
      total[i] = fmaf(total[i], factor[i], sum);
    }
  }

  /// Of one row, as kParts warps found it kApart floats from one to the next: the tops become what
  /// the sums of each are to be multiplied with.
  template <int kParts, int kApart>
  static void join(float* tops, const float* totals) {
    float most = -kInfinity, total = 0, factors[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) most = fmaxf(most, tops[part * kApart]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      factors[part] = power(tops[part * kApart] - subtracted(most));
      total = fmaf(totals[part * kApart], factors[part], total);
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) tops[part * kApart] = factors[part] / total;
  }
};

/// S names the schedule: also
///   kWarps of a slice, each with kRows queries of its own; kSlices, each with kKeys of a block
///   kStages: blocks in shared memory, one only where there is one block or kIsAsync is not set
///   kIsAsync: there is cp.async
/// P is the problem: also kDepth, kFeatures, kTiles of queries in a batch, and the factors Queries,
/// Keys and Values, whose rows are of the depth, or of features. Epilogue stores a result.
template <class S, class P, class Middle, class Epilogue>
struct AttentionPlain {
  static constexpr int kWarps = S::kWarps * S::kSlices, kThreads = 32 * kWarps;
  static constexpr int kTile = S::kWarps * S::kRows;  // queries of a block
  static constexpr int kFours = (P::kDepth + 3) / 4;
  template <class Factor, int kLines, int kWidth>
  using TileOf = FactorTile<Factor, float, kLines, kWidth, kThreads, false, 4, 4>;
  static constexpr int kDepth = (P::kDepth + 7) / 8 * 8;  // as tiles have it
  using QueryTile = TileOf<typename P::Queries, kTile, kDepth>;
  using KeyTile = TileOf<typename P::Keys, S::kBlock, kDepth>;
  using ValueTile = TileOf<typename P::Values, S::kBlock, P::kFeatures>;

  // A warp's weights, a line of queries for each key: lanes that write fours together meet in no
  // bank.
  static constexpr int kWeightPitch = (S::kRows + 7) / 16 * 16 + 8;
  static constexpr int kWarpWeights = S::kKeys * kWeightPitch;
  static constexpr int kDown = S::kRows / 4, kAcross = S::kKeys / 8;
  using Scores = PlainWarp<float, kDown, kAcross, QueryTile::kPitch, KeyTile::kPitch>;
  using Results = PlainWarp<float, kDown, P::kFeatures / 8, kWeightPitch, ValueTile::kPitch>;
  using Rows = PlainRows<S, P, Middle, Scores>;
  static_assert(P::kFeatures % 8 == 0 && S::kBlock == S::kSlices * S::kKeys);
  static_assert(S::kStages > 1 ? S::kIsAsync : !S::kIsAsync || S::kWhole);

  static constexpr int kStageBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kRingBytes = QueryTile::kBytes + S::kStages * kStageBytes;
  // These hold, in the end, what every slice has of each query, and how its scores were.
  static constexpr int kPitch = P::kFeatures + 4;
  static constexpr int kSliceSums = kTile * kPitch;
  static constexpr int kJoinBytes =
      S::kSlices * (kSliceSums + 2 * kTile) * static_cast<int>(sizeof(float));
  static constexpr int kLoopBytes =
      kRingBytes + kWarps * kWarpWeights * static_cast<int>(sizeof(float));
  static constexpr int kSharedBytes = kLoopBytes > kJoinBytes ? kLoopBytes : kJoinBytes;
  static constexpr int kAhead = S::kStages > 1 ? S::kStages - 1 : 1;  // blocks on their way

  const P& problem;
  FactorMemory<typename P::Queries> queries;
  FactorMemory<typename P::Keys> keys;
  FactorMemory<typename P::Values> values;
  const Middle& middle;
  const Epilogue& epilogue;
  unsigned char* memory;
  int batch, first;  // of the block's queries

  static int slice() { return threadIdx.x / (32 * S::kWarps); }
  static int own_query() { return threadIdx.x / 32 % S::kWarps * S::kRows; }  // of the tile
  int blocks() const { return S::kWhole ? 1 : problem.kBlocks; }

  float* queries_at() const { return reinterpret_cast<float*>(memory); }
  float* keys_at(int stage) const {
    return reinterpret_cast<float*>(memory + QueryTile::kBytes + stage * kStageBytes);
  }
  float* values_at(int stage) const {
    return reinterpret_cast<float*>(memory + QueryTile::kBytes + stage * kStageBytes +
                                    KeyTile::kBytes);
  }
  float* weights() const {
    return reinterpret_cast<float*>(memory + kRingBytes) + threadIdx.x / 32 * kWarpWeights;
  }

  template <class Tile, class Factor>
  static void load(float* to, const FactorMemory<Factor>& from, int row) {
    if constexpr (S::kIsAsync)
      Tile::copy_later(shared_address(to), from, row, 0);
    else
      Tile::copy_now(to, from, row, 0);
  }
  // Two groups of copies, which come in this order.
  void load_block(int block, int stage) const {
    const bool is_there = block < blocks();
    if (is_there) load<KeyTile>(keys_at(stage), keys, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
    if (is_there) load<ValueTile>(values_at(stage), values, block * S::kBlock);
    if constexpr (S::kIsAsync) copy_commit();
  }

  // This slice's keys of a block, of which `there` exist, as weights in shared memory.
  void weigh(Results& results, Rows& rows, int block, int stage, int there) const {
    const int own = slice() * S::kKeys;
    Scores scores;
    scores.template multiply_rows<kFours>(queries_at() + own_query() * QueryTile::kPitch,
                                          keys_at(stage) + own * KeyTile::kPitch);
    const int query = first + own_query();
    Rows::settle(scores, problem, middle, batch * problem.kQueries + query, query,
                 block * S::kBlock + own, there);
    float factor[kDown];
    rows.soften(scores, factor);
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
      float of_key[kDown];
#pragma unroll
      for (int i = 0; i < kDown; ++i) of_key[i] = scores.sums[i][j];
      Results::store_column(weights() + Scores::near_column(j) * kWeightPitch, of_key);
    }
    if (S::kWhole) return;
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (float& sum : results.sums[i]) sum *= factor[i];
  }

  // A lane's number i of queries is that of both products: weights lie in this order.
  void put(const Results& results, const Rows& rows, float* sums, float* tops,
           float* totals) const {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
      const int row = slice() * kTile + own_query() + Scores::near_row(i);
      Results::store_row(sums + row * kPitch, results.sums[i]);
      const float total = Scores::over_row(rows.total[i], [](float x, float y) { return x + y; });
      if (Scores::lane_across() == 0) tops[row] = rows.top[i], totals[row] = total;
    }
  }

  void finish(const float* sums, const float* factors) const {
    constexpr int kPairs = P::kFeatures / 2;
#pragma unroll 1
    for (int i = threadIdx.x; i < kTile * kPairs; i += kThreads) {
      const int row = i / kPairs, feature = i % kPairs * 2, query = first + row;
      if (query >= problem.kQueries) return;  // as are all that follow
      float result[2] = {};
#pragma unroll
      for (int slice = 0; slice < S::kSlices; ++slice) {
        const auto pair = *reinterpret_cast<const Pack<float, 2>*>(sums + slice * kSliceSums +
                                                                   row * kPitch + feature);
        const float factor = factors[slice * kTile + row];
        result[0] = fmaf(pair.items[0], factor, result[0]);
        result[1] = fmaf(pair.items[1], factor, result[1]);
      }
      epilogue.store_pair(Epilogue::finish(result[0], {}), Epilogue::finish(result[1], {}),
                          batch * problem.kQueries + query, feature);
    }
  }

  void attend() const {
    load<QueryTile>(queries_at(), queries, first);
    if constexpr (S::kIsAsync)
      for (int i = 0; i < kAhead; ++i) load_block(i, i);
    Results results;
    Rows rows;
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
      const bool is_last = S::kWhole || block + 1 == problem.kBlocks;
      const int there = (is_last ? problem.kLeft : S::kBlock) - slice() * S::kKeys;
      if (there > 0) weigh(results, rows, block, stage, there);
      if constexpr (S::kIsAsync) {
        copy_wait<2 * kAhead>();
        __syncthreads();
      } else {
        __syncwarp();
      }
      if (there > 0)
        results.template multiply<S::kKeys>(
            weights(), values_at(stage) + slice() * S::kKeys * ValueTile::kPitch);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
    launch_next();
    float* const sums = reinterpret_cast<float*>(memory);
    float* const tops = sums + S::kSlices * kSliceSums;
    float* const totals = tops + S::kSlices * kTile;
    __syncthreads();  // all have left the last block
    put(results, rows, sums, tops, totals);
    __syncthreads();
    if (threadIdx.x < kTile)
      Rows::template join<S::kSlices, kTile>(tops + threadIdx.x, totals + threadIdx.x);
    __syncthreads();
    finish(sums, tops);
  }

  static void run(const P& problem, const FactorMemory<typename P::Queries>& queries,
                  const FactorMemory<typename P::Keys>& keys,
                  const FactorMemory<typename P::Values>& values, const Middle& middle,
                  const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int batch = static_cast<int>(blockIdx.x / problem.kTiles);
    const int first = static_cast<int>(blockIdx.x % problem.kTiles) * kTile;
    const AttentionPlain attention{problem,
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

// softmax(scale q k + ...) v on Hopper: a producer warp copies queries, keys and values to shared
// memory, warpgroups hold the scores of 64 queries in registers, which become the left operand of
// the second product (Shah et al., FlashAttention-3, 2024, without its exchange of roles). Where
// all keys fit into one block, the softmax is exact in one pass; otherwise it is kept up from block
// to block. Few queries are worked on by clusters, each block of which has some of the keys.
#pragma once

#include "attention_rows.h"
#include "boxes.h"
#include "fragments.h"
#include "quads.h"

namespace tensor::device {

/// S names the schedule:
///   Element of queries, keys and values, Output of the result
///   kGroups of 128 threads, each with 64 queries at a time; kTiles: of 64 queries, that share what
///   is copied of keys and values
///   kBlock: keys of a block, in kHalves instructions; kWhole: it has all keys of a row;
///   kLeastLeft: how many the last one has at least; kStages: blocks in shared memory
///   kParts: thread blocks of a cluster that share the keys of the same queries
///   kMiddle: something is done to scaled scores before the softmax
///   kStaged: results are stored as boxes
/// P is the problem: kQueries; kBlocks of keys, kLeft in the last one; kUnitsOfBatch pieces of work
/// of a batch, kWork in all; constants kDepth, kFeatures and kScale (times log2(e) unless there is
/// a middle); and where boxes lie: queries(x, query, batch) and so on. Scores::run is wgmma of
/// kBlock / kHalves columns, Values and ValuesRest those of the first 64 features and of the
/// others. Middle changes a score, Epilogue stores a result.
template <class S, class P, class Scores, class Values, class ValuesRest, class Middle,
          class Epilogue>
struct AttentionSm90 {
  static constexpr int kRowBytes = 128;
  static constexpr int kDepthPanels = (P::kDepth + 63) / 64;
  static constexpr int kFeaturePanels = (P::kFeatures + 63) / 64;
  static constexpr u32 kTilePanel = 64 * kRowBytes, kBlockPanel = S::kBlock * kRowBytes;
  static constexpr u32 kTileBytes = kDepthPanels * kTilePanel;
  static constexpr u32 kKeyBytes = kDepthPanels * kBlockPanel;
  static constexpr u32 kValueBytes = kFeaturePanels * kBlockPanel;
  static constexpr u32 kResultBytes = S::kStaged ? kFeaturePanels * kTilePanel : 0;
  // Of a row's sums, with its largest score and the sum of its exponentials behind them.
  static constexpr int kSharePitch = P::kFeatures + 4;
  // Rows that a block of a cluster finishes, the last ones what is left.
  static constexpr int kShare = (64 * S::kGroups + S::kParts - 1) / S::kParts;
  static constexpr u32 kSharesBytes = S::kParts > 1 ? S::kParts* kShare* kSharePitch * 4 : 0;
  static constexpr u32 kSharedBytes = S::kGroups * (kTileBytes + kResultBytes) +
                                      S::kStages * (kKeyBytes + kValueBytes) + kSharesBytes;
  static constexpr int kConsumers = 128 * S::kGroups;
  static constexpr int kThreads = kConsumers + (S::kGroups > 1 ? 128 : 32);
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = S::kGroups == 2 ? 232 : 152;
  static constexpr u32 kGroupBarrier = 1;

  using Rows = AttentionRows<S, P, Middle>;
  static constexpr int kUnits = Rows::kUnits;
  static constexpr int kHalf = S::kBlock / S::kHalves;  // columns of one instruction
  static constexpr int kScores = kHalf / 2;             // sums of it
  static constexpr int kFirst = P::kFeatures < 64 ? P::kFeatures : 64;  // features
  static constexpr int kRest = P::kFeatures > 64 ? P::kFeatures - 64 : 8;
  static_assert(S::kWhole || S::kTiles == S::kGroups, "keys that stream by are seen once");
  static_assert(S::kBlock % 16 == 0 && kHalf % 8 == 0 && kHalf <= 256 && S::kHalves <= 2);
  static_assert(P::kFeatures % 8 == 0 && P::kFeatures <= 128 && P::kDepth <= 128);
  static_assert(S::kParts == 1 || (!S::kWhole && !S::kStaged));

  const P& problem;
  const TensorMap &queries, &keys, &values, &results;
  const Middle& middle;
  const Epilogue& epilogue;
  u32 memory, barriers;
  int part;

  u32 tile_full(int group) const { return barriers + 8 * group; }
  u32 tile_empty(int group) const { return barriers + 8 * (S::kGroups + group); }
  u32 stage_barrier(int which, int stage) const {
    return barriers + 8 * (2 * S::kGroups + which * S::kStages + stage);
  }
  u32 keys_full(int stage) const { return stage_barrier(0, stage); }
  u32 keys_empty(int stage) const { return stage_barrier(1, stage); }
  u32 values_full(int stage) const { return stage_barrier(2, stage); }
  u32 values_empty(int stage) const { return stage_barrier(3, stage); }
  u32 sent() const { return barriers + 8 * (kBarriers - 1); }
  static constexpr int kBarriers = 2 * S::kGroups + 4 * S::kStages + (S::kParts > 1 ? 1 : 0);

  u32 keys_at(int stage) const { return memory + stage * (kKeyBytes + kValueBytes); }
  u32 values_at(int stage) const { return keys_at(stage) + kKeyBytes; }
  u32 tile_at(int group) const { return keys_at(S::kStages) + group * kTileBytes; }
  u32 result_at(int group) const { return tile_at(S::kGroups) + group * kResultBytes; }
  // What block `from` has of a row of a share.
  u32 share_at(int from, int row) const {
    return tile_at(S::kGroups) + S::kGroups * kResultBytes +
           (from * kShare + row) * kSharePitch * 4;
  }
  // A block's only piece of work begins with the first of these queries, of which it has so many.
  int first_query() const { return query_of(first_work(), 0); }
  int rows() const { return min(64 * S::kGroups, problem.kQueries - first_query()); }
  int my_share() const { return min(kShare, max(rows() - part * kShare, 0)); }

  using Turn = RingTurn<S::kStages>;
  int query_of(int work, int tile) const {
    return (work % problem.kUnitsOfBatch * S::kTiles + tile) * 64;
  }
  int batch_of(int work) const { return work / problem.kUnitsOfBatch; }
  // A cluster has one piece of work, other blocks take what is left.
  static int first_work() { return static_cast<int>(blockIdx.x) / S::kParts; }
  int first_block() const { return S::kParts > 1 ? problem.kBlocks * part / S::kParts : 0; }
  int last_block() const {
    return S::kParts > 1 ? problem.kBlocks * (part + 1) / S::kParts
           : S::kWhole   ? 1
                         : problem.kBlocks;
  }

  void start() const {
    if (threadIdx.x == 0) {
      prefetch(queries);
      prefetch(keys);
      prefetch(values);
      for (int i = 0; i < S::kGroups; ++i) {
        barrier_init(tile_full(i), 1);
        barrier_init(tile_empty(i), 1);
      }
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(keys_full(i), 1);
        barrier_init(keys_empty(i), S::kGroups);
        barrier_init(values_full(i), 1);
        barrier_init(values_empty(i), S::kGroups);
      }
      if constexpr (S::kParts > 1) barrier_init(sent(), 1);
      barrier_init_fence();
      if constexpr (S::kParts > 1)
        barrier_expect(sent(), S::kParts * my_share() * (P::kFeatures + 2) * 4);
    }
    __syncthreads();
    if constexpr (S::kParts > 1) cluster_arrive();
  }

  void load_keys(const Turn& turn, int block, int batch) const {
    barrier_wait(keys_empty(turn.stage), turn.parity ^ 1);
    barrier_expect(keys_full(turn.stage), kKeyBytes);
    for (int panel = 0; panel < kDepthPanels; ++panel)
      for (int half = 0; half < S::kHalves; ++half)
        load_box(keys_at(turn.stage) + panel * kBlockPanel + half * kHalf * kRowBytes, keys,
                 keys_full(turn.stage),
                 problem.keys(64 * panel, block * S::kBlock + half * kHalf, batch).axes);
  }
  void load_values(const Turn& turn, int block, int batch) const {
    barrier_wait(values_empty(turn.stage), turn.parity ^ 1);
    barrier_expect(values_full(turn.stage), kValueBytes);
    for (int panel = 0; panel < kFeaturePanels; ++panel)
      for (int half = 0; half < S::kHalves; ++half)
        load_box(values_at(turn.stage) + panel * kBlockPanel + half * kHalf * kRowBytes, values,
                 values_full(turn.stage),
                 problem.values(64 * panel, block * S::kBlock + half * kHalf, batch).axes);
  }

  void produce() const {
    wait_for_previous();
    Turn turn;
    u32 parities = 0;  // of the tiles' barriers, one bit a group
    for (int work = first_work(); work < problem.kWork; work += gridDim.x) {
      const int batch = batch_of(work);
      for (int tile = 0; tile < S::kTiles; ++tile) {
        const int group = tile % S::kGroups, query = query_of(work, tile);
        // The first queries come before the keys, later ones when there is room.
        if (query < problem.kQueries) {
          barrier_wait(tile_empty(group), (parities >> group & 1) ^ 1);
          parities ^= 1u << group;
          barrier_expect(tile_full(group), kTileBytes);
          for (int panel = 0; panel < kDepthPanels; ++panel)
            load_box(tile_at(group) + panel * kTilePanel, queries, tile_full(group),
                     problem.queries(64 * panel, query, batch).axes);
        }
        if (tile + 1 != S::kGroups) continue;
        for (int block = first_block(); block < last_block(); ++block, turn.next()) {
          load_keys(turn, block, batch);
          load_values(turn, block, batch);
        }
      }
    }
  }

  static float& score(float (&s)[S::kHalves][kScores], int unit, int i) {
    return s[unit / (kHalf / 8)][unit % (kHalf / 8) * 4 + i];
  }

  void multiply_scores(float (&s)[S::kHalves][kScores], int stage, int group) const {
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < (P::kDepth + 15) / 16; ++k) {
      const u64 a = swizzled_tile(tile_at(group) + k / 4 * kTilePanel) + 2 * (k % 4);
#pragma unroll
      for (int half = 0; half < S::kHalves; ++half) {
        const u64 b =
            swizzled_tile(keys_at(stage) + k / 4 * kBlockPanel + half * kHalf * kRowBytes);
        Scores::run(s[half], a, b + 2 * (k % 4), k > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int half = 0; half < S::kHalves; ++half)
#pragma unroll
      for (int i = 0; i < kScores; ++i) touch(s[half][i]);
  }

  // The sums of results: of the first 64 features and of the rest.
  struct Sums {
    float first[kFirst / 2], rest[kRest / 2];
  };

  void multiply_values(Sums& sums, u32 (&p)[kUnits * 2], int stage, bool is_first) const {
#pragma unroll
    for (int i = 0; i < kUnits * 2; ++i) touch(p[i]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < S::kBlock / 16; ++k) {
      const u32 a[4] = {p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3]};
      const u64 b = turned_swizzled_tile(values_at(stage), kBlockPanel) + 128 * k;
      const int accumulate = !is_first || k > 0;
      Values::run(sums.first, a, b, accumulate);
      if constexpr (kFeaturePanels > 1)
        ValuesRest::run(sums.rest, a, b + kBlockPanel / 16, accumulate);
    }
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kFirst / 2; ++i) touch(sums.first[i]);
    if constexpr (kFeaturePanels > 1)
#pragma unroll
      for (int i = 0; i < kRest / 2; ++i) touch(sums.rest[i]);
  }

  template <int kCount>
  void scale(float (&sums)[kCount], const float (&factor)[2]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] *= factor[i / 2 % 2];
  }

  // One panel of 64 features or fewer, by the epilogue or through shared memory.
  template <int kCount>
  void write(const float (&sums)[kCount], int group, int batch, int query, int panel) const {
    if constexpr (S::kStaged) {
      const Place mine = ldmatrix_row_of_a(threadIdx.x % 32);
      const int row = threadIdx.x % 128 / 32 * 16 + mine.row;
#pragma unroll
      for (int unit = 0; unit < kCount / 4; unit += 2) {
        const bool is_whole = unit + 1 < kCount / 4;
        u32 pairs[4] = {};
#pragma unroll
        for (int i = 0; i < (is_whole ? 4 : 2); ++i)
          pairs[i] = S::Output::pair(sums[4 * unit + 2 * i], sums[4 * unit + 2 * i + 1]);
        // The last eight features of an odd number bring eight columns along that nobody stores.
        const int chunk = unit + mine.column / 8;
        store_matrices(
            result_at(group) + panel * kTilePanel + row * kRowBytes + ((chunk ^ row % 8) << 4),
            pairs);
      }
    } else if constexpr (Epilogue::kStoresEight && kCount % 16 == 0) {
      const Place mine = place_of_lane(threadIdx.x % 128);
#pragma unroll
      for (int unit = 0; unit < kCount / 4; unit += 4)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int q = query + mine.row + kGroupSums.of_element(2 * r).row;
          const int row = batch * problem.kQueries + q, feature = 64 * panel + 8 * unit;
          u32 bytes[2] = {};
          if (q < problem.kQueries)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int at = 4 * (unit + i) + 2 * r;
              bytes[i / 2] |=
                  two_bytes(epilogue, sums[at], sums[at + 1], row, feature + 8 * i + mine.column)
                  << 16 * (i % 2);
            }
          transpose_quad(bytes);
          if (q < problem.kQueries)
            epilogue.store_eight(bytes, row, feature + 8 * (static_cast<int>(threadIdx.x) % 4));
        }
    } else {
      const Place mine = place_of_lane(threadIdx.x % 128);
#pragma unroll
      for (int unit = 0; unit < kCount / 4; ++unit)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int q = query + mine.row + kGroupSums.of_element(2 * r).row;
          if (q < problem.kQueries)
            store_results(epilogue, sums[4 * unit + 2 * r], sums[4 * unit + 2 * r + 1],
                          batch * problem.kQueries + q, 64 * panel + 8 * unit + mine.column);
        }
    }
  }

  void finish(Sums& sums, const Rows& rows, int group, int batch, int query) const {
    const bool speaks = threadIdx.x % 128 == 0;
    float factor[2];
    rows.finish(factor);
    scale(sums.first, factor);
    if constexpr (kFeaturePanels > 1) scale(sums.rest, factor);
    if constexpr (S::kStaged) {
      if (speaks) store_wait_read();
      named_barrier(kGroupBarrier + group, 128);
    }
    write(sums.first, group, batch, query, 0);
    if constexpr (kFeaturePanels > 1) write(sums.rest, group, batch, query, 1);
    if constexpr (S::kStaged) {
      fence_for_copies();
      named_barrier(kGroupBarrier + group, 128);
      if (speaks) {
        for (int panel = 0; panel < kFeaturePanels; ++panel)
          store_box(results, result_at(group) + panel * kTilePanel,
                    problem.results(64 * panel, query, batch).axes);
        store_commit();
      }
    }
  }

  // Sums of these keys to the blocks of the cluster that finish the rows.
  void share(const Sums& sums, const Rows& softmax, int group) const {
    const Place mine = place_of_lane(threadIdx.x % 128);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = 64 * group + mine.row + kGroupSums.of_element(2 * r).row;
      const float total = Rows::whole(softmax.total[r]);
      if (row >= rows()) continue;
      const int owner = row / kShare;
      const u32 to = peer_address(share_at(part, row % kShare), owner);
      const u32 barrier = peer_address(sent(), owner);
      if (mine.column == 0) send(to + P::kFeatures * 4, barrier, {softmax.top[r], total});
#pragma unroll
      for (int unit = 0; unit < kFirst / 8; ++unit)
        send(to + (8 * unit + mine.column) * 4, barrier,
             {sums.first[4 * unit + 2 * r], sums.first[4 * unit + 2 * r + 1]});
      if constexpr (kFeaturePanels > 1)
#pragma unroll
        for (int unit = 0; unit < kRest / 8; ++unit)
          send(to + (64 + 8 * unit + mine.column) * 4, barrier,
               {sums.rest[4 * unit + 2 * r], sums.rest[4 * unit + 2 * r + 1]});
    }
  }

  // Every block finishes its share of the rows, four features a thread.
  void finish_share() const {
    constexpr int kItems = P::kFeatures / 4;  // of a row
    const int first = batch_of(first_work()) * problem.kQueries + first_query() + part * kShare;
    barrier_wait_for_sent(sent(), 0);
    for (int item = threadIdx.x; item < my_share() * kItems; item += kConsumers) {
      const int row = item / kItems, column = item % kItems * 4;
      float ends[S::kParts][2], tops[S::kParts], factors[S::kParts];
#pragma unroll
      for (int from = 0; from < S::kParts; ++from) {
        load_own(ends[from], share_at(from, row) + P::kFeatures * 4);
        tops[from] = ends[from][0];
      }
      Rows::join(tops, factors);
      float sums[4] = {}, total = 0;
#pragma unroll
      for (int from = 0; from < S::kParts; ++from) {
        float own[4];
        load_own(own, share_at(from, row) + column * 4);
        total = fmaf(ends[from][1], factors[from], total);
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[k] = fmaf(own[k], factors[from], sums[k]);
      }
      const float factor = 1.0f / total;
#pragma unroll
      for (int k = 0; k < 4; k += 2)
        store_results(epilogue, sums[k] * factor, sums[k + 1] * factor, first + row, column + k);
    }
  }

  // The blocks of keys for 64 queries. `leaves`: nobody in this group needs them afterwards.
  void attend(Turn& turn, u32& parity, int group, int batch, int query, bool leaves) const {
    const bool speaks = threadIdx.x % 128 == 0, is_empty = query >= problem.kQueries;
    const int row = place_of_lane(threadIdx.x % 128).row;
    Sums sums;
    Rows rows;
    if (!is_empty) {
      barrier_wait(tile_full(group), parity);
      parity ^= 1;
    }
#pragma unroll 1
    for (int block = first_block(); block < last_block(); ++block) {
      const bool is_first = block == first_block();
      barrier_wait(keys_full(turn.stage), turn.parity);
      u32 p[kUnits * 2];
      float factor[2];
      if (!is_empty) {
        float s[S::kHalves][kScores];
        multiply_scores(s, turn.stage, group);
        if (speaks && leaves) barrier_arrive(keys_empty(turn.stage));
        if (speaks && block + 1 == last_block()) barrier_arrive(tile_empty(group));
        const auto score_of = [&](int unit, int i) -> float& { return score(s, unit, i); };
        Rows::settle(score_of, problem, middle, block, batch, query + row);
        rows.soften(score_of, p, is_first, factor);
      } else if (speaks && leaves) {
        barrier_arrive(keys_empty(turn.stage));
      }
      barrier_wait(values_full(turn.stage), turn.parity);
      if (!is_empty) {
        if (!S::kWhole && !is_first) {
          scale(sums.first, factor);
          if constexpr (kFeaturePanels > 1) scale(sums.rest, factor);
        }
        multiply_values(sums, p, turn.stage, is_first);
      }
      if (speaks && leaves) barrier_arrive(values_empty(turn.stage));
      if (leaves) turn.next();
    }
    if (is_empty) return;
    if constexpr (S::kParts > 1)
      share(sums, rows, group);
    else
      finish(sums, rows, group, batch, query);
  }

  void consume() const {
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    Turn turn;
    u32 parity = 0;
    if constexpr (S::kParts > 1) cluster_wait();  // until all blocks run
    wait_for_previous();
    for (int work = first_work(); work < problem.kWork; work += gridDim.x) {
      if (work + static_cast<int>(gridDim.x) >= problem.kWork) launch_next();
      const int batch = batch_of(work);
      for (int tile = group; tile < S::kTiles; tile += S::kGroups)
        attend(turn, parity, group, batch, query_of(work, tile), tile + S::kGroups >= S::kTiles);
    }
    if constexpr (S::kParts > 1) finish_share();
    if (S::kStaged && threadIdx.x % 128 == 0) store_wait();
  }

  static void run(const P& problem, const TensorMap& queries, const TensorMap& keys,
                  const TensorMap& values, const TensorMap& results, const Middle& middle,
                  const Epilogue& epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[kBarriers];
    const AttentionSm90 attention{problem,
                                  queries,
                                  keys,
                                  values,
                                  results,
                                  middle,
                                  epilogue,
                                  shared_address(memory),
                                  shared_address(barriers),
                                  S::kParts > 1 ? static_cast<int>(cluster_rank()) : 0};
    attention.start();
    if (threadIdx.x >= kConsumers) {
      if constexpr (S::kGroups > 1) give_registers<kProducerRegisters>();
      if (threadIdx.x / 32 == kConsumers / 32 && elect_one()) attention.produce();
      if constexpr (S::kParts > 1) {
        __syncwarp();
        cluster_wait();
      }
    } else {
      if constexpr (S::kGroups > 1) take_registers<kConsumerRegisters>();
      attention.consume();
    }
  }
};

}  // namespace tensor::device

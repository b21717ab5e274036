// out[batch, t, f] = epilogue(sum over k of x[batch, t, k] * w[batch, f, k]) on Hopper: one thread
// of a producer warp fills a ring of tiles through the tensor memory accelerator, warpgroups
// multiply them with wgmma, finish the sums in registers and store them. Blocks are persistent.
//
// Either side may be the 64 rows of wgmma: tokens, or, for few tokens, features ("swapped"), whose
// number is a multiple of 64 anyway while any multiple of 8 tokens fits the other side.
#pragma once

#include "gemm_results.h"

namespace tensor::device {

/// S names the schedule:
///   Input: the type of both factors; of i8 sums are ints, and nothing is turned
///   Output: the type of the outputs that are stored as boxes; float where tokens are the rows only
///   kTokens, kFeatures of a tile; kStages of the ring; kGroups of 128 threads that multiply, each
///   kBlocks times 64 rows; kSwapped
///   kHandsOver: the producer's registers go to those that multiply
///   kTakesTurns: every group has a tile of its own, so that one finishes while another multiplies
///   kSplits: blocks of a cluster that share a tile's depth and exchange their sums
///   kShares: blocks of a cluster that share the weights of neighbouring tiles of tokens
///   kBand: tiles of tokens that are worked on before the next features
///   kTurned: weights lie with features next to each other, not with k
///   kWeightsFirst: they come from no kernel, so that loading them need not wait
///   kStaged: outputs are stored as boxes, not (only) by the epilogue
///   kAddend: one of the epilogue's inputs, of the outputs' type, comes as boxes while products are
///     summed, and is replaced by the outputs where it lies in shared memory
///   kPairs: features are even in number; kWholeFeatures, kWholeTokens: no tile reaches beyond the
///   last one
///   kReadFirst: what the epilogue reads is read before the products
///   kFeatureInputs: that is a constant for each feature
///   kNormalizes: rows of x have mean 0 and deviation 1, but come as they are: what that does to a
///     sum is corrected (norm.h), by the sums of the rows that epilogue.given_sums has
///   kRowSums: of epilogue.summed(outputs) the same go to epilogue.row_sums
/// P is the problem:
///   kTokens, kFeatures, kDepth, kBatches; kSteps along the depth
///   kTokenTiles along the tokens, kTiles in all, kTilesOfBatch and, where none is cut off,
///   kTilesOfBand
///   kOnce: weights are read by one block only, so that the cache need not keep them
///   kLaunchFirst: all blocks run at a time, so that the next kernel's may come at once
///   kEps of the norm
/// and where boxes of each tensor lie: weights(k, feature, batch), inputs(k, token, batch),
/// outputs(feature, token, batch), and addends(feature, token, batch) where there are any.
/// Wgmma::run(sums, a, b, accumulate) is the instruction for the tile's columns.
template <class S, class P, class Wgmma, class Epilogue>
struct GemmSm90 {
  // Of a tile: rows as wide as the swizzle.
  static constexpr int kRowBytes = 128, kDepth = kRowBytes / sizeof(typename S::Input);
  static constexpr int kPanelBytes = 64 * kRowBytes;
  using Sum = SumOf<typename S::Input>;
  static constexpr int kTeams = S::kTakesTurns ? S::kGroups : 1;  // each with a tile
  static constexpr int kMembers = S::kGroups / kTeams;            // groups of a team
  static constexpr int kGroupRows = 64 * S::kBlocks, kRows = kGroupRows * kMembers;
  using Results = GemmResults<S, P, Epilogue>;
  using Tile = typename Results::Tile;
  static constexpr int kColumns = Results::kColumns;
  static constexpr u32 kRowTile = kRows * kRowBytes, kColumnTile = kColumns * kRowBytes;
  static constexpr u32 kStageBytes = kRowTile + kColumnTile;
  static constexpr int kConsumers = 128 * S::kGroups;
  // A whole warpgroup where registers are handed over, since it does that together.
  static constexpr int kThreads = kConsumers + (S::kHandsOver || S::kNormalizes ? 128 : 32);
  // Of the 65,536 of a multiprocessor; to ask for more than there are would wait for ever.
  static constexpr int kProducerRegisters = Results::kWide ? 24 : 40;
  static constexpr int kConsumerRegisters = S::kGroups > 2 ? 152 : Results::kWide ? 240 : 232;
  static_assert(kProducerRegisters * 128 + kConsumerRegisters * kConsumers <= 65536 ||
                !S::kHandsOver);
  static constexpr int kSums = Results::kSums;
  static constexpr u32 kTurnBarrier = Results::kGroupBarrier + S::kGroups;

  static_assert((S::kSwapped ? S::kFeatures : S::kTokens) == kRows, "one side is wgmma's rows");
  static_assert(kColumns % 8 == 0 && kColumns <= 256, "the other side is its columns");
  static_assert(!S::kTurned || S::kFeatures % 64 == 0, "turned weights come in panels");

  static_assert(S::kSplits == 1 || (S::kSwapped && !S::kTakesTurns && S::kShares == 1));
  static_assert(S::kShares == 1 || (!S::kTurned && !S::kSwapped && S::kBand % S::kShares == 0));
  static constexpr int kCluster = S::kSplits * S::kShares;
  // The producer's other warps make statistics of the rows, of several tiles ahead.
  static constexpr int kStatisticians = 3;
  static constexpr int kSlots = S::kNormalizes ? 2 * kTeams : 0;

  static constexpr u32 kResultsAt = S::kStages * kStageBytes;
  // The sums of a block's share that each block of the cluster made.
  static constexpr u32 kExchangeAt = kResultsAt + Results::kBytes;
  static constexpr int kMyUnits = Results::kMyColumns / 8;
  static constexpr u32 kPartBytes = S::kBlocks * kMyUnits * kConsumers * 16;
  static constexpr u32 kStatisticsAt = kExchangeAt + (S::kSplits > 1 ? S::kSplits * kPartBytes : 0);
  // Those that the last of unequal shares of a tile reaches beyond it are there, too.
  static constexpr int kStatisticsTokens =
      S::kSwapped ? S::kSplits * Results::kMyColumns : S::kTokens;
  static constexpr u32 kStatisticsBytes = kStatisticsTokens * 8;
  static constexpr u32 kSharedBytes = kStatisticsAt + kSlots * kStatisticsBytes;

  // The ring has two barriers for each stage, the statistics two for each slot, sums that other
  // blocks send one; those of the results follow.
  static constexpr int kRingBarriers = 2 * (S::kStages + kSlots) + (S::kSplits > 1 ? 1 : 0);
  static constexpr int kBarriers = kRingBarriers + Results::kBarriers;

  const P& problem;
  const TensorMap &weights, &inputs;
  const Results results;
  unsigned char* memory;
  u32 tiles_at, barriers;

  Tile place(int tile) const {
    const int batch = tile / problem.kTilesOfBatch, inside = tile % problem.kTilesOfBatch;
    const int band = inside / problem.kTilesOfBand, first = band * S::kBand;
    const int high = min(S::kBand, problem.kTokenTiles - first);
    const int rest = inside % problem.kTilesOfBand;
    return {batch, (first + rest % high) * S::kTokens, rest / high * S::kFeatures};
  }

  u32 full(int stage) const { return barriers + 8 * stage; }
  u32 empty(int stage) const { return barriers + 8 * (S::kStages + stage); }
  // Of the statistics of the block's tile number `place`.
  u32 known(int place) const { return barriers + 8 * (2 * S::kStages + place % kSlots); }
  u32 used(int place) const { return barriers + 8 * (2 * S::kStages + kSlots + place % kSlots); }
  u32 exchanged() const { return barriers + 8 * (kRingBarriers - 1); }
  float* statistics_at(int place) const {
    return reinterpret_cast<float*>(memory + kStatisticsAt + place % kSlots * kStatisticsBytes);
  }
  u32 stage_at(int stage) const { return tiles_at + stage * kStageBytes; }
  u32 weights_at(int stage) const { return stage_at(stage) + (S::kSwapped ? 0 : kRowTile); }
  u32 inputs_at(int stage) const { return stage_at(stage) + (S::kSwapped ? kRowTile : 0); }

  using Turn = RingTurn<S::kStages>;

  void start() const {
    if (threadIdx.x == 0) {
      prefetch(weights);
      prefetch(inputs);
      if (S::kAddend) prefetch(results.addends);
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), kMembers * S::kShares);
      }
      if constexpr (S::kNormalizes)
        for (int i = 0; i < kSlots; ++i) {
          barrier_init(known(i), 32 * kStatisticians);
          barrier_init(used(i), 128 * kMembers);
        }
      if constexpr (S::kSplits > 1) barrier_init(exchanged(), 1);
      results.start();
      barrier_init_fence();
      if constexpr (S::kSplits > 1) barrier_expect(exchanged(), S::kSplits * my_part_bytes());
    }
    __syncthreads();
    if constexpr (kCluster > 1) cluster_arrive();
    if constexpr (S::kShares > 1) cluster_wait();
    if (problem.kLaunchFirst) launch_next();
  }

  // Of a tile's steps, those of this block.
  int first_step() const { return step_of_part(0); }
  int last_step() const { return S::kSplits > 1 ? step_of_part(1) : problem.kSteps; }
  int step_of_part(int next) const {
    return S::kSplits > 1 ? (int(cluster_rank()) + next) * problem.kSteps / S::kSplits : 0;
  }
  static int first_tile() { return blockIdx.x / S::kSplits; }
  static int tiles_a_round() { return gridDim.x / S::kSplits; }

  void load_weights(int stage, int step, const Tile& tile) const {
    const u32 to = weights_at(stage);
    if constexpr (S::kTurned) {
      for (int panel = 0; panel < S::kFeatures / 64; ++panel) {
        const auto at = problem.weights(step * kDepth, tile.feature + 64 * panel, tile.batch);
        load_box(to + panel * kPanelBytes, weights, full(stage), at.axes);
      }
    } else if constexpr (S::kShares > 1) {
      // Every block brings a part for all.
      constexpr int kPart = S::kFeatures / S::kShares;
      const int rank = cluster_rank();
      load_box_to_all(to + rank * kPart * kRowBytes, weights, full(stage),
                      problem.weights(step * kDepth, tile.feature + rank * kPart, tile.batch).axes,
                      (1 << S::kShares) - 1);
    } else {
      const auto at = problem.weights(step * kDepth, tile.feature, tile.batch);
      if constexpr (sizeof at == 8)
        if (problem.kOnce) {
          load_box(to, weights, full(stage), at.axes[0], at.axes[1], evict_first());
          return;
        }
      load_box(to, weights, full(stage), at.axes);
    }
  }
  void load_inputs(int stage, int step, const Tile& tile) const {
    load_box(inputs_at(stage), inputs, full(stage),
             problem.inputs(step * kDepth, tile.token, tile.batch).axes);
  }

  void produce() const {
    Turn turn;
    turn.parity = 1;  // the ring begins empty
    bool is_first = true;
    const int first = first_step(), last = last_step();
    if (!S::kWeightsFirst) wait_for_previous();
    for (int i = first_tile(); i < problem.kTiles; i += tiles_a_round()) {
      const Tile tile = place(i);
      int step = first;
      if (S::kWeightsFirst && is_first) {
        // The weights of the first tiles come while the kernel ahead still runs.
        const int ready = min(last - first, S::kStages);
        for (int j = 0; j < ready; ++j) {
          barrier_expect(full(j), kStageBytes);
          load_weights(j, first + j, tile);
        }
        wait_for_previous();
        for (; step < first + ready; ++step, turn.next()) load_inputs(turn.stage, step, tile);
        is_first = false;
      }
      for (; step < last; ++step, turn.next()) {
        barrier_wait(empty(turn.stage), turn.parity);
        barrier_expect(full(turn.stage), kStageBytes);
        load_weights(turn.stage, step, tile);
        load_inputs(turn.stage, step, tile);
      }
    }
  }

  // Mean and deviation of every tile's tokens, of the sums that were handed over.
  void make_statistics(int warp) const {
    const float gain = results.epilogue.gain();
    const int lane = threadIdx.x % 32;
    wait_for_previous();
    int place_in_row = 0;
    for (int i = first_tile(); i < problem.kTiles; i += tiles_a_round(), ++place_in_row) {
      const Tile tile = place(i);
      barrier_wait(used(place_in_row), place_in_row / kSlots & 1 ^ 1);
      float* const to = statistics_at(place_in_row);
      for (int t = 32 * warp + lane; t < kStatisticsTokens; t += 32 * kStatisticians) {
        float pair[2] = {};
        if (tile.token + t < problem.kTokens)
          statistics_of(pair, results.epilogue.given_sums, problem.kBatches * problem.kTokens,
                        tile.batch * problem.kTokens + tile.token + t, problem.kDepth, P::kEps,
                        gain);
        store_pack<2>(to + 2 * t, pair);
      }
      barrier_arrive(known(place_in_row));
    }
  }

  // The operands as wgmma finds them, and how far 32 bytes of k, or, turned, 16 of k are apart, in
  // units of 16 bytes.
  static constexpr bool kRowsTurned = S::kTurned && S::kSwapped;
  static constexpr bool kColumnsTurned = S::kTurned && !S::kSwapped;
  static constexpr int kRowStep = kRowsTurned ? 128 : 2, kColumnStep = kColumnsTurned ? 128 : 2;
  static u64 operand(u32 address, bool turned) {
    return turned ? turned_swizzled_tile(address, kPanelBytes) : swizzled_tile(address);
  }

  // One tile's sums. A stage is given back once the products that read it have ended, which is one
  // step after they were begun.
  void multiply(Sum (&sums)[S::kBlocks][kSums], Turn& turn, int row, int team, int tile) const {
    int previous = -1;
    // In the order of the tiles: a barrier of the ring tells only the last round from the one
    // before, so that nobody may wait who is further ahead.
    if constexpr (kTeams > 1)
      if (tile >= tiles_a_round()) named_barrier(kTurnBarrier + team, 256);
    const int steps = last_step() - first_step();
    for (int step = 0; step < steps; ++step, turn.next()) {
      barrier_wait(full(turn.stage), turn.parity);
      const u64 rows = operand(stage_at(turn.stage) + row * kRowBytes, kRowsTurned);
      const u64 columns = operand(stage_at(turn.stage) + kRowTile, kColumnsTurned);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kRowBytes / 32; ++k)
#pragma unroll
        for (int block = 0; block < S::kBlocks; ++block)
          Wgmma::run(sums[block], rows + block * (kPanelBytes / 16) + kRowStep * k,
                     columns + kColumnStep * k, step > 0 || k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (previous >= 0) give_back(previous);
      previous = turn.stage;
    }
    if constexpr (kTeams > 1)
      if (tile + tiles_a_round() < problem.kTiles)
        named_barrier_arrive(kTurnBarrier + (team + 1) % kTeams, 256);
    wgmma_wait<0>();
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
      for (int i = 0; i < kSums; ++i) touch(sums[block][i]);
    give_back(previous);
  }
  void give_back(int stage) const {
    if constexpr (S::kShares > 1) {
      const int thread = threadIdx.x % 128;
      if (thread < S::kShares) barrier_arrive_peer(peer_address(empty(stage), thread));
    } else {
      if (threadIdx.x % 128 == 0) barrier_arrive(empty(stage));
    }
  }

  // Adds up the sums of the cluster's blocks: every block is sent all parts of its share, its own
  // among them, and adds them in the same order.
  static u32 my_part_bytes() {
    const int units = min(kMyUnits, kColumns / 8 - int(cluster_rank()) * kMyUnits);
    return S::kBlocks * units * kConsumers * 16;
  }
  u32 part_at(int from, int block, int unit) const {
    return tiles_at + kExchangeAt + from * kPartBytes +
           ((block * kMyUnits + unit) * kConsumers + threadIdx.x) * 16;
  }
  void exchange(Sum (&sums)[S::kBlocks][kSums]) const {
    constexpr int kUnits = kMyUnits;
    const int rank = cluster_rank();
    cluster_wait();  // until all blocks run
#pragma unroll
    for (int to = 0; to < S::kSplits; ++to) {
      const u32 peer = peer_address(part_at(rank, 0, 0), to);
      const u32 barrier = peer_address(exchanged(), to);
#pragma unroll
      for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
          const int i = 4 * (to * kUnits + unit);
          if (i >= kSums) continue;
          const Sum part[4] = {sums[block][i], sums[block][i + 1], sums[block][i + 2],
                               sums[block][i + 3]};
          send(peer + (part_at(0, block, unit) - part_at(0, 0, 0)), barrier, part);
        }
    }
    barrier_wait_for_sent(exchanged(), 0);
#pragma unroll
    for (int block = 0; block < S::kBlocks; ++block)
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit)
        if (!Results::kUneven || 8 * (rank * kUnits + unit) < kColumns) {
          Sum part[S::kSplits][4];
#pragma unroll
          for (int from = 0; from < S::kSplits; ++from)
            load_own(part[from], part_at(from, block, unit));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            Sum sum = part[0][i];
#pragma unroll
            for (int from = 1; from < S::kSplits; ++from) sum += part[from][i];
            sums[block][4 * unit + i] = sum;
          }
        }
  }

  void consume() const {
    // The shuffle tells the compiler that all lanes have one value, which then needs no register a
    // lane.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int team = group / kMembers, row = group % kMembers * kGroupRows;
    const int step = kTeams * tiles_a_round();
    Sum sums[S::kBlocks][kSums];
    Turn turn;
    if (team > 0) turn.skip(team * problem.kSteps);
    typename Results::Turn panel;
    int place_in_row = team;  // of the tile among the block's
    for (int i = first_tile() + team * tiles_a_round(); i < problem.kTiles;
         i += step, place_in_row += kTeams) {
      Tile tile = place(i);
      typename Results::Ready ready = {};
      results.read_first(ready, tile, row);
      results.prepare(tile, group, row, panel);
      multiply(sums, turn, row, team, i);
      if constexpr (S::kNormalizes) {
        barrier_wait(known(place_in_row), place_in_row / kSlots & 1);
        tile.statistics = statistics_at(place_in_row);
      }
      if constexpr (S::kSplits > 1) exchange(sums);
      if constexpr (kTeams > 1) turn.skip((kTeams - 1) * problem.kSteps);
      if (!problem.kLaunchFirst && i + step >= problem.kTiles) launch_next();
      wait_for_previous();  // the epilogue may read what the kernel ahead wrote
      typename Results::RowSums row_sums = {};
      results.finish_all(sums, tile, group, row, panel, ready, row_sums);
      if constexpr (S::kNormalizes) barrier_arrive(used(place_in_row));
    }
    if (S::kStaged && Results::speaks()) store_wait();
  }

  // Blocks that share weights stay until nobody gives back a stage to them any more.
  void leave() const {
    if constexpr (S::kShares > 1) {
      __syncwarp();
      cluster_arrive();
      cluster_wait();
    }
  }

  static void run(const P& problem, const TensorMap& weights, const TensorMap& inputs,
                  const TensorMap& outputs, const TensorMap& addends, const Epilogue& epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[kBarriers];
    const u32 tiles = shared_address(memory), first_barrier = shared_address(barriers);
    const Results results{problem,
                          outputs,
                          addends,
                          epilogue,
                          memory + kResultsAt,
                          tiles + kResultsAt,
                          first_barrier + 8 * kRingBarriers};
    const GemmSm90 gemm{problem, weights, inputs, results, memory, tiles, first_barrier};
    gemm.start();
    if (threadIdx.x >= kConsumers) {
      if constexpr (S::kHandsOver) give_registers<kProducerRegisters>();
      const int warp = threadIdx.x / 32 - kConsumers / 32;
      if (warp == 0 && elect_one()) gemm.produce();
      if constexpr (S::kNormalizes)
        if (warp > 0) gemm.make_statistics(warp - 1);
      if constexpr (S::kSplits > 1) {
        __syncwarp();
        cluster_wait();
      }
    } else {
      if constexpr (S::kHandsOver) take_registers<kConsumerRegisters>();
      gemm.consume();
    }
    gemm.leave();
  }
};

}  // namespace tensor::device

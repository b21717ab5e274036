// out[t, f] = epilogue(sum over k of x[t, k] * w[f, k]) on Hopper: one thread of a producer warp
// fills a ring of tiles through the tensor memory accelerator, warpgroups multiply them with wgmma,
// finish the sums in registers and store them through shared memory. Blocks are persistent.
//
// Either side may be the 64 rows of wgmma: tokens, or, for few tokens, features ("swapped"), whose
// number is a multiple of 64 anyway while any multiple of 8 tokens fits the other side.
#pragma once

#include "fragments.h"
#include "ptx.h"

namespace tensor::device {

/// S names the schedule: Element (Half or Bfloat16), kTokens and kFeatures of a tile, kStages of
/// the ring, kGroups of 64 rows, kSwapped. Wgmma::run(sums, a, b, accumulate) is the instruction
/// for the tile's columns. `epilogue(sum, token, feature)` gives what is stored.
template <class S, class Wgmma, class Epilogue>
struct GemmSm90 {
  static constexpr int kDepth = 64;  // of a tile: rows of 128 bytes, the width of the swizzle
  static constexpr int kRowBytes = 128;
  static constexpr int kRows = 64 * S::kGroups;
  static constexpr int kColumns = S::kSwapped ? S::kTokens : S::kFeatures;
  static constexpr u32 kRowTile = kRows * kRowBytes, kColumnTile = kColumns * kRowBytes;
  static constexpr u32 kStageBytes = kRowTile + kColumnTile;
  static constexpr int kConsumers = 128 * S::kGroups;
  // A whole warpgroup where registers are handed over, since it does that together.
  static constexpr int kThreads = kConsumers + (S::kGroups > 1 ? 128 : 32);
  // Of the 65,536 of a multiprocessor; to ask for more than there are would wait for ever.
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = S::kGroups == 2 ? 232 : 152;
  static_assert(kProducerRegisters * 128 + kConsumerRegisters * kConsumers <= 65536 ||
                S::kGroups == 1);
  static constexpr int kSums = kColumns / 2;
  static constexpr u32 kOutTile = S::kTokens * S::kFeatures * 2;
  static constexpr u32 kSharedBytes = S::kStages * kStageBytes + kOutTile;
  static constexpr u32 kConsumerBarrier = 1;

  static_assert((S::kSwapped ? S::kFeatures : S::kTokens) == kRows, "one side is wgmma's rows");
  static_assert(kColumns % 8 == 0 && kColumns <= 256, "the other side is its columns");
  static_assert(S::kFeatures % 64 == 0, "outputs are stored in panels of 64 features");

  const TensorMap &weights, &inputs, &outputs;
  const Epilogue& epilogue;
  int tokens, features, depth;
  u32 tiles_at, barriers;

  int feature_tiles() const { return (features + S::kFeatures - 1) / S::kFeatures; }
  int tiles() const { return feature_tiles() * ((tokens + S::kTokens - 1) / S::kTokens); }
  int first_feature(int tile) const { return tile % feature_tiles() * S::kFeatures; }
  int first_token(int tile) const { return tile / feature_tiles() * S::kTokens; }
  int blocks() const { return (depth + kDepth - 1) / kDepth; }
  u32 full(int stage) const { return barriers + 8 * stage; }
  u32 empty(int stage) const { return barriers + 8 * (S::kStages + stage); }
  u32 stage_at(int stage) const { return tiles_at + stage * kStageBytes; }
  u32 weights_at(int stage) const { return stage_at(stage) + (S::kSwapped ? 0 : kRowTile); }
  u32 inputs_at(int stage) const { return stage_at(stage) + (S::kSwapped ? kRowTile : 0); }

  // The place in the ring, and the parity that its barriers have this time round.
  struct Turn {
    int stage = 0;
    u32 parity = 0;
    void next() {
      if (++stage == S::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
  };

  void start() const {
    if (threadIdx.x == 0) {
      prefetch(weights);
      prefetch(inputs);
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), S::kGroups);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }

  void produce() const {
    const u64 once = evict_first();
    Turn turn;
    turn.parity = 1;  // the ring begins empty
    bool is_first = true;
    for (int tile = blockIdx.x; tile < tiles(); tile += gridDim.x) {
      const int feature = first_feature(tile), token = first_token(tile);
      int block = 0;
      if (is_first) {
        // Weights depend on nothing: their first tiles come while the kernel ahead still runs.
        const int ready = min(blocks(), S::kStages);
        for (int i = 0; i < ready; ++i) {
          barrier_expect(full(i), kStageBytes);
          load_box(weights_at(i), weights, full(i), i * kDepth, feature, once);
        }
        wait_for_previous();
        for (; block < ready; ++block) {
          load_box(inputs_at(block), inputs, full(block), block * kDepth, token);
          turn.next();
        }
        is_first = false;
      }
      for (; block < blocks(); ++block, turn.next()) {
        barrier_wait(empty(turn.stage), turn.parity);
        barrier_expect(full(turn.stage), kStageBytes);
        load_box(weights_at(turn.stage), weights, full(turn.stage), block * kDepth, feature, once);
        load_box(inputs_at(turn.stage), inputs, full(turn.stage), block * kDepth, token);
      }
    }
  }

  // One tile's sums. A stage is given back once the products that read it have ended, which is one
  // step after they were begun.
  void multiply(float (&sums)[kSums], Turn& turn, int group) const {
    const bool speaks = threadIdx.x % 128 == 0;
    int previous = -1;
    for (int block = 0; block < blocks(); ++block, turn.next()) {
      barrier_wait(full(turn.stage), turn.parity);
      const u64 rows = swizzled_tile(stage_at(turn.stage) + group * 64 * kRowBytes);
      const u64 columns = swizzled_tile(stage_at(turn.stage) + kRowTile);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)  // 32 bytes further along the rows, in units of 16
        Wgmma::run(sums, rows + 2 * k, columns + 2 * k, block > 0 || k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (previous >= 0 && speaks) barrier_arrive(empty(previous));
      previous = turn.stage;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kSums; ++i) touch(sums[i]);
    if (previous >= 0 && speaks) barrier_arrive(empty(previous));
  }

  float finished(float sum, int token, int feature) const {
    return token < tokens && feature < features ? epilogue(sum, token, feature) : 0.f;
  }

  // Where a row of eight features of a token lies in the tile for the store: panels of 64 features,
  // 128 bytes a token, swizzled as the accelerator reads it.
  static u32 out_row(int token, int feature) {
    const int chunk = feature % 64 / 8;
    return feature / 64 * (S::kTokens * kRowBytes) + token * kRowBytes + ((chunk ^ token % 8) << 4);
  }

  void finish(const float (&sums)[kSums], int tile, int group) const {
    constexpr MatrixMultiply kShape = wgmma64xNx16(kColumns);
    const u32 out_at = tiles_at + S::kStages * kStageBytes;
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    const int feature = first_feature(tile), token = first_token(tile);
    const Place mine = kShape.d.of_lane(thread);
    const int warp_row = group * 64 + __shfl_sync(0xffffffffu, thread / 32, 0) * 16;
#pragma unroll
    for (int column = 0; column < kColumns; column += 16) {
      const bool is_whole = column + 8 < kColumns;  // 16 columns are left, not 8
      u32 pairs[4];  // 8 x 8: the warp's upper and lower rows, then those of the next columns
#pragma unroll
      for (int i = 0; i < (is_whole ? 4 : 2); ++i) {
        float value[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int element = column / 2 + 2 * i + j;
          const Place p = kShape.d.of_element(element);
          const int row = group * 64 + mine.row + p.row, c = mine.column + p.column;
          value[j] = S::kSwapped ? finished(sums[element], token + c, feature + row)
                                 : finished(sums[element], token + row, feature + c);
        }
        pairs[i] = S::Element::pair(value[0], value[1]);
      }
      // Lane i names row i % 8 of matrix i / 8.
      const int row = warp_row + lane / 8 % 2 * 8, c = column + lane / 16 * 8;
      if constexpr (S::kSwapped) {
        const u32 to = out_at + out_row(c + lane % 8, row);
        if (is_whole)
          store_matrices_transposed(to, pairs);
        else
          store_matrices_transposed(to, pairs[0], pairs[1]);
      } else {
        store_matrices(out_at + out_row(row + lane % 8, c), pairs);
      }
    }
  }

  void consume() const {
    // The shuffle tells the compiler that all lanes have one value, which then needs no register a
    // lane.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const u32 out_at = tiles_at + S::kStages * kStageBytes;
    float sums[kSums];
    Turn turn;
    for (int tile = blockIdx.x; tile < tiles(); tile += gridDim.x) {
      multiply(sums, turn, group);
      if (tile + static_cast<int>(gridDim.x) >= tiles()) launch_next();
      wait_for_previous();  // the epilogue may read what the kernel ahead wrote
      if (threadIdx.x == 0) store_wait_read();
      named_barrier(kConsumerBarrier, kConsumers);
      finish(sums, tile, group);
      fence_for_copies();
      named_barrier(kConsumerBarrier, kConsumers);
      if (threadIdx.x == 0) {
        for (int panel = 0; panel < S::kFeatures / 64; ++panel)
          store_box(outputs, out_at + panel * S::kTokens * kRowBytes,
                    first_feature(tile) + panel * 64, first_token(tile));
        store_commit();
      }
    }
    if (threadIdx.x == 0) store_wait();
  }

  static void run(const TensorMap& weights, const TensorMap& inputs, const TensorMap& outputs,
                  const Epilogue& epilogue, int tokens, int features, int depth) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * S::kStages];
    const GemmSm90 gemm{weights,
                        inputs,
                        outputs,
                        epilogue,
                        tokens,
                        features,
                        depth,
                        shared_address(memory),
                        shared_address(barriers)};
    gemm.start();
    if (threadIdx.x >= kConsumers) {
      if constexpr (S::kGroups > 1) give_registers<kProducerRegisters>();
      if (threadIdx.x / 32 == kConsumers / 32 && elect_one()) gemm.produce();
    } else {
      if constexpr (S::kGroups > 1) take_registers<kConsumerRegisters>();
      gemm.consume();
    }
  }
};

}  // namespace tensor::device

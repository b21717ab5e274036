// Convolution as a product over gathered pixels on Hopper: one thread fills a ring of tiles through
// the tensor memory accelerator, whose im2col boxes hold one tap of the windows of successive
// pixels; warpgroups multiply them with wgmma. A block has one tile and its multiprocessor several
// blocks, so that one finishes while another multiplies. There is no warp for loading alone: warps
// in multiples of four leave most registers to each. Where there are few tiles, the blocks of a
// cluster share the depth of one and add up through each other's shared memory.
#pragma once

#include "conv_tile.h"

namespace tensor::device {

/// P names the problem: kTapRows, kTapColumns, kStrideY/X, kPadY/X, kDilationY/X of the window;
/// kOutHeight, kOutWidth, kPixels, kOutputs of the result; kChannels of the image, a multiple of
/// 64; kIsMatrix where pixels are read as they lie, as rows of a matrix; kWeightsFirst where no
/// kernel ahead writes the weights. S names the schedule: kOutputs of a tile, kGroups of 64 pixels,
/// kStages of the ring, kParts of the depth.
/// Wgmma::run(sums, a, b, accumulate) is the instruction for kOutputs columns.
template <class P, class S, class Wgmma, class E>
struct ConvSm90 {
  static constexpr int kBlock = 64, kRowBytes = 128;  // of depth a step: the swizzle's width
  static constexpr int kPixels = 64 * S::kGroups, kColumns = S::kOutputs;
  static constexpr u32 kPixelTile = kPixels * kRowBytes, kOutputTile = kColumns * kRowBytes;
  static constexpr u32 kStageBytes = kPixelTile + kOutputTile;
  static constexpr int kThreads = 128 * S::kGroups;
  static constexpr int kOutputBlocks = (P::kOutputs + kColumns - 1) / kColumns;
  static constexpr int kChannelBlocks = P::kChannels / kBlock;
  static constexpr int kSteps = P::kTapRows * P::kTapColumns * kChannelBlocks;
  static constexpr int kChunk = kColumns < 64 ? kColumns : 64;  // columns that finish together
  static constexpr u32 kSharedBytes = S::kStages * kStageBytes;
  static constexpr int kPitch = kColumns + 8;  // of shared sums: no two rows meet in a bank
  static_assert(S::kParts == 1 || (kPixels * kPitch * 4 <= kSharedBytes && S::kParts <= kSteps));
  static_assert(P::kChannels % kBlock == 0 && kColumns % kChunk == 0);
  static_assert(kRowsBuffer<kChunk> * 4 * kThreads / 32 <= kSharedBytes);

  const TensorMap &image, &weights;
  u32 tiles, barriers;
  int first_pixel, first_output, begin, end;

  u32 full(int stage) const { return barriers + 8 * stage; }
  u32 empty(int stage) const { return barriers + 8 * (S::kStages + stage); }
  u32 stage_at(int stage) const { return tiles + stage * kStageBytes; }

  void start() const {
    if (threadIdx.x == 0) {
      prefetch(image);
      prefetch(weights);
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), S::kGroups);
      }
      barrier_init_fence();
    }
    __syncthreads();
  }

  void load_weights(int stage, int step) const {
    load_box(stage_at(stage) + kPixelTile, weights, full(stage), step * kBlock, first_output);
  }
  void load_image(int stage, int step) const {
    const int channel = step % kChannelBlocks * kBlock, tap = step / kChannelBlocks;
    if constexpr (P::kIsMatrix) {
      load_box(stage_at(stage), image, full(stage), channel, first_pixel);
    } else {
      const int in_image = first_pixel % (P::kOutHeight * P::kOutWidth);
      load_pixels(stage_at(stage), image, full(stage),
                  {channel, in_image % P::kOutWidth * P::kStrideX - P::kPadX,
                   in_image / P::kOutWidth * P::kStrideY - P::kPadY,
                   first_pixel / (P::kOutHeight * P::kOutWidth)},
                  {tap % P::kTapColumns * P::kDilationX, tap / P::kTapColumns * P::kDilationY});
    }
  }

  // The first tiles: the weights of the ring come while the kernel ahead still runs.
  void load_first() const {
    const int ready = min(end - begin, S::kStages);
    if constexpr (!P::kWeightsFirst) wait_for_previous();
    for (int i = 0; i < ready; ++i) {
      barrier_expect(full(i), kStageBytes);
      load_weights(i, begin + i);
    }
    wait_for_previous();
    for (int i = 0; i < ready; ++i) load_image(i, begin + i);
  }
  void load(int stage, int step, u32 parity) const {
    barrier_wait(empty(stage), parity);
    barrier_expect(full(stage), kStageBytes);
    load_weights(stage, step);
    load_image(stage, step);
  }

  // A stage is filled again once the products that read it have ended, a step after they were
  // begun.
  void multiply(float (&sums)[kColumns / 2], int warp) const {
    if (warp == 0) {
      if (elect_one()) load_first();
      __syncwarp();
    }
    int stage = 0, previous = -1;
    u32 parity = 0, previous_parity = 0;
    for (int step = begin; step < end; ++step) {
      barrier_wait(full(stage), parity);
      const u64 rows = swizzled_tile(stage_at(stage) + warp / 4 * 64 * kRowBytes);
      const u64 columns = swizzled_tile(stage_at(stage) + kPixelTile);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kBlock / 16; ++k)  // 32 bytes further along the rows, in units of 16
        Wgmma::run(sums, rows + 2 * k, columns + 2 * k, step > begin || k > 0);
      wgmma_commit();
      wgmma_wait<1>();
      const int next = step - 1 + S::kStages;
      if (previous >= 0 && next < end) {
        if (threadIdx.x % 128 == 0) barrier_arrive(empty(previous));
        if (warp == 0) {
          if (elect_one()) load(previous, next, previous_parity);
          __syncwarp();
        }
      }
      previous = stage;
      previous_parity = parity;
      if (++stage == S::kStages) {
        stage = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) touch(sums[i]);
  }

  void finish(const float (&sums)[kColumns / 2], int warp, unsigned char* memory,
              const E& epilogue) const {
    float* buffer = reinterpret_cast<float*>(memory) + warp * kRowsBuffer<kChunk>;
#pragma unroll
    for (int column = 0; column < kColumns; column += kChunk) {
      float chunk[kChunk / 8][4];
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) chunk[i / 4][i % 4] = sums[column / 2 + i];
      finish_rows<kChunk>(chunk, buffer, first_pixel + warp * 16, first_output + column, P::kPixels,
                          P::kOutputs, epilogue);
    }
  }

  // The sums of a part to its own shared memory, for every block of the cluster to read.
  void share(const float (&sums)[kColumns / 2], int warp, float* rows) const {
    const Place mine = kWarpSums.of_lane(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const Place p = kWarpSums.of_element(i % 4);
      rows[(warp * 16 + mine.row + p.row) * kPitch + i / 4 * 8 + mine.column + p.column] = sums[i];
    }
  }

  // Every block finishes its share of the tile's pixels.
  void finish_share(u32 rows, u32 rank, const E& epilogue) const {
    constexpr int kGroups = kColumns / 8, kItems = kPixels * kGroups;
    for (int item = rank * kThreads + threadIdx.x; item < kItems; item += S::kParts * kThreads) {
      const int row = item / kGroups, column = item % kGroups * 8;
      const int pixel = first_pixel + row, channel = first_output + column;
      if (pixel >= P::kPixels || channel >= P::kOutputs) continue;
      const auto line = epilogue.template line<8>(channel);
      const auto read = epilogue.template pixel<8>(pixel, channel);
      float total[8] = {};
#pragma unroll
      for (int part = 0; part < S::kParts; ++part) {
        const u32 peer = peer_address(rows + (row * kPitch + column) * 4, part);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float values[4];
          load_peer(values, peer + half * 16);
#pragma unroll
          for (int k = 0; k < 4; ++k) total[4 * half + k] += values[k];
        }
      }
      epilogue.template finish<8>(total, line, read, pixel, channel);
    }
  }

  static void run(const TensorMap& image, const TensorMap& weights, const E& epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * S::kStages];
    const u32 part = S::kParts > 1 ? cluster_rank() : 0;
    const int block = static_cast<int>(blockIdx.x) / S::kParts;
    const ConvSm90 conv{image,
                        weights,
                        shared_address(memory),
                        shared_address(barriers),
                        block / kOutputBlocks * kPixels,
                        block % kOutputBlocks * kColumns,
                        kSteps * static_cast<int>(part) / S::kParts,
                        kSteps * static_cast<int>(part + 1) / S::kParts};
    conv.start();
    launch_next();
    // The shuffle tells the compiler that all lanes have one value, which then needs no register a
    // lane.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    float sums[kColumns / 2];
    conv.multiply(sums, warp);
    wait_for_previous();  // the epilogue may read what the kernel ahead wrote
    __syncthreads();      // the ring is the epilogue's memory now
    if constexpr (S::kParts == 1) {
      conv.finish(sums, warp, memory, epilogue);
    } else {
      conv.share(sums, warp, reinterpret_cast<float*>(memory));
      cluster_arrive();
      cluster_wait();
      conv.finish_share(conv.tiles, part, epilogue);
      cluster_arrive();  // nobody leaves while others read its memory
      cluster_wait();
    }
  }
};

}  // namespace tensor::device

// Convolution as a product over gathered pixels on Hopper: one thread fills a ring of tiles through
// the tensor memory accelerator, whose im2col boxes hold one tap of the windows of successive
// pixels; warpgroups multiply them with wgmma. A block has one tile and its multiprocessor several
// blocks, so that one finishes while another multiplies. There is no warp for loading alone: warps
// in multiples of four leave most registers to each. Where there are few tiles, the blocks of a
// cluster share the depth of one, and send their sums to those that finish them.
#pragma once

#include "conv_tile.h"

namespace tensor::device {

/// P names the problem: kTapColumns, kStrideY/X, kPadY/X, kDilationY/X of the window; kOutWidth,
/// kOutArea, kPixels, kOutputs of the result; kChannelBlocks of 128 bytes of channels of the image,
/// kSteps of the depth, kOutputBlocks of tiles; kHasGroups, and then kGroupOutputs, a multiple of a
/// tile's, that read kGroupChannels of their own; kIsMatrix where pixels are read as they lie, as
/// rows of a matrix; kWeightsFirst where no kernel ahead writes the weights. S names the schedule:
/// Input, the type of image and weights, of i8 sums are ints; kOutputs of a tile, kGroups of 64
/// pixels, kStages of the ring, kParts of the depth. Wgmma::run(sums, a, b, accumulate) is the
/// instruction for kOutputs columns.
template <class P, class S, class Wgmma, class E>
struct ConvSm90 {
  // Of depth a step: the swizzle's width.
  static constexpr int kRowBytes = 128, kBlock = kRowBytes / sizeof(typename S::Input);
  using Sum = SumOf<typename S::Input>;
  static constexpr int kPixels = 64 * S::kGroups, kColumns = S::kOutputs;
  static constexpr u32 kPixelTile = kPixels * kRowBytes, kOutputTile = kColumns * kRowBytes;
  static constexpr u32 kStageBytes = kPixelTile + kOutputTile;
  static constexpr int kThreads = 128 * S::kGroups;
  static constexpr int kChunk = kColumns < 64 ? kColumns : 64;  // columns that finish together
  static constexpr u32 kSharedBytes = S::kStages * kStageBytes;
  static constexpr int kPitch = kColumns + 8;  // of shared sums: no two rows meet in a bank
  // Pixels that a block finishes, the last one what is left.
  static constexpr int kShare = (kPixels + S::kParts - 1) / S::kParts;
  static constexpr int kBarriers = 2 * S::kStages + (S::kParts > 1 ? 1 : 0);
  static_assert(S::kParts == 1 || S::kParts * kShare * kPitch * 4 <= kSharedBytes);
  static_assert(kColumns % kChunk == 0);
  static_assert(kRowsBuffer<kChunk> * 4 * kThreads / 32 <= kSharedBytes);

  const P& problem;
  const TensorMap &image, &weights;
  u32 tiles, barriers;
  int part, first_pixel, first_output, begin, end;

  u32 full(int stage) const { return barriers + 8 * stage; }
  u32 empty(int stage) const { return barriers + 8 * (S::kStages + stage); }
  u32 stage_at(int stage) const { return tiles + stage * kStageBytes; }
  u32 sent() const { return barriers + 8 * (kBarriers - 1); }
  // Sums that block `from` made of a pixel of a share, where the ring was.
  u32 sums_at(int from, int pixel) const { return tiles + (from * kShare + pixel) * kPitch * 4; }
  int my_share() const { return min(kShare, kPixels - part * kShare); }

  void start() const {
    if (threadIdx.x == 0) {
      prefetch(image);
      prefetch(weights);
      for (int i = 0; i < S::kStages; ++i) {
        barrier_init(full(i), 1);
        barrier_init(empty(i), S::kGroups);
      }
      if constexpr (S::kParts > 1) barrier_init(sent(), 1);
      barrier_init_fence();
      if constexpr (S::kParts > 1) barrier_expect(sent(), S::kParts * my_share() * kColumns * 4);
    }
    __syncthreads();
  }

  void load_weights(int stage, int step) const {
    load_box(stage_at(stage) + kPixelTile, weights, full(stage), step * kBlock, first_output);
  }
  void load_image(int stage, int step) const {
    const int channel =
        step % problem.kChannelBlocks * kBlock + first_channel<P>(problem, first_output);
    const int tap = step / problem.kChannelBlocks;
    if constexpr (P::kIsMatrix) {
      load_box(stage_at(stage), image, full(stage), channel, first_pixel);
    } else {
      const int in_image = first_pixel % problem.kOutArea;
      load_pixels(stage_at(stage), image, full(stage),
                  {channel, in_image % problem.kOutWidth * problem.kStrideX - problem.kPadX,
                   in_image / problem.kOutWidth * problem.kStrideY - problem.kPadY,
                   first_pixel / problem.kOutArea},
                  {tap % problem.kTapColumns * problem.kDilationX,
                   tap / problem.kTapColumns * problem.kDilationY});
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
  void multiply(Sum (&sums)[kColumns / 2], int warp) const {
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
      for (int k = 0; k < kRowBytes / 32; ++k)  // 32 bytes further along the rows, in units of 16
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

  void finish(const Sum (&sums)[kColumns / 2], int warp, unsigned char* memory,
              const E& epilogue) const {
    float* buffer = reinterpret_cast<float*>(memory) + warp * kRowsBuffer<kChunk>;
#pragma unroll
    for (int column = 0; column < kColumns; column += kChunk) {
      float chunk[kChunk / 8][4];
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) chunk[i / 4][i % 4] = float(sums[column / 2 + i]);
      finish_rows<kChunk>(chunk, buffer, first_pixel + warp * 16, first_output + column,
                          problem.kPixels, problem.kOutputs, epilogue);
    }
  }

  // The sums of a part to the blocks that finish them, once all products that read their rings have
  // ended: of reads no arrival needs to tell more (barrier_arrive_peer()).
  void share(const Sum (&sums)[kColumns / 2], int warp) const {
    cluster_arrive();
    cluster_wait();
    const Place mine = kWarpSums.of_lane(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int pixel = warp * 16 + mine.row + kWarpSums.of_element(2 * r).row;
      const int owner = pixel / kShare;
      const u32 to = peer_address(sums_at(part, pixel % kShare) + mine.column * 4, owner);
      const u32 barrier = peer_address(sent(), owner);
#pragma unroll
      for (int unit = 0; unit < kColumns / 8; ++unit)
        send_two(to + unit * 32, barrier, sums[4 * unit + 2 * r], sums[4 * unit + 2 * r + 1]);
    }
  }

  static void send_two(u32 peer, u32 barrier, Sum first, Sum second) {
    const Sum both[2] = {first, second};
    send(peer, barrier, both);
  }

  // Every block finishes its share of the tile's pixels.
  void finish_share(const E& epilogue) const {
    constexpr int kGroups = kColumns / 8;
    barrier_wait_for_sent(sent(), 0);
    for (int item = threadIdx.x; item < my_share() * kGroups; item += kThreads) {
      const int row = item / kGroups, column = item % kGroups * 8;
      const int pixel = first_pixel + part * kShare + row, channel = first_output + column;
      if (pixel >= problem.kPixels || channel >= problem.kOutputs) continue;
      const auto line = epilogue.template line<8>(channel);
      const auto read = epilogue.template pixel<8>(pixel, channel);
      Sum total[8] = {};
#pragma unroll
      for (int from = 0; from < S::kParts; ++from)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          Sum values[4];
          load_own(values, sums_at(from, row) + column * 4 + half * 16);
#pragma unroll
          for (int k = 0; k < 4; ++k) total[4 * half + k] += values[k];
        }
      float sums[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) sums[k] = float(total[k]);
      epilogue.template finish<8>(sums, line, read, pixel, channel);
    }
  }

  static void run(const P& problem, const TensorMap& image, const TensorMap& weights,
                  const E& epilogue) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[kBarriers];
    const int part = S::kParts > 1 ? static_cast<int>(cluster_rank()) : 0;
    const int block = static_cast<int>(blockIdx.x) / S::kParts;
    const ConvSm90 conv{problem,
                        image,
                        weights,
                        shared_address(memory),
                        shared_address(barriers),
                        part,
                        block / problem.kOutputBlocks * kPixels,
                        block % problem.kOutputBlocks * kColumns,
                        problem.kSteps * part / S::kParts,
                        problem.kSteps * (part + 1) / S::kParts};
    conv.start();
    launch_next();
    // The shuffle tells the compiler that all lanes have one value, which then needs no register a
    // lane.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    Sum sums[kColumns / 2];
    conv.multiply(sums, warp);
    wait_for_previous();  // the epilogue may read what the kernel ahead wrote
    if constexpr (S::kParts == 1) {
      __syncthreads();  // the ring is the epilogue's memory now
      conv.finish(sums, warp, memory, epilogue);
    } else {
      conv.share(sums, warp);
      conv.finish_share(epilogue);
    }
  }
};

}  // namespace tensor::device

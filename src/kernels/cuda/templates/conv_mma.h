// Convolution as a product over gathered pixels (implicit GEMM) with mma.sync, of 16-bit floats or
// of float32 rounded to tf32: rows are pixels of
// the result, columns its channels, the depth runs over taps of the window and channels of the
// image, which lies channels last. Tiles come by cp.async, or before sm_80 through registers.
#pragma once

#include "conv_tile.h"
#include "mma.h"

namespace tensor::device {

/// P names the problem: Element; of the image kHeight, kWidth, kChannels (a multiple of 8) and its
/// steps in elements kImageStep, kRowStep, kColumnStep; the window's kTapColumns, kTaps,
/// kStrideY/X, kPadY/X, kDilationY/X; of the result kOutWidth, kOutArea, kPixels, kOutputs,
/// kOutputBlocks of tiles; kHasGroups, and then kGroupOutputs, a multiple of a tile's, that read
/// kGroupChannels of their own, kChannels; kDepth, the length of a packed row of weights [output,
/// tap, channel], zero beyond the taps, kSteps of it, and kIsWholeDepth where there is nothing
/// beyond. S names the schedule: kPixels and kOutputs of a tile, kWarpsY by kWarpsX warps, kStages,
/// kParts of the depth, and whether copies are asynchronous.
template <class P, class S, class E>
struct ConvMma {
  using Element = typename P::Element;
  static constexpr int kRowBytes = 64, kChunks = kRowBytes / 16;  // of a row of a tile
  static constexpr int kBlock = kRowBytes / sizeof(Element);      // of depth
  static constexpr int kThreads = 32 * S::kWarpsY * S::kWarpsX;
  static constexpr int kRowsAtOnce = kThreads / kChunks;
  static constexpr int kPixelCopies = S::kPixels / kRowsAtOnce;
  static constexpr int kOutputCopies = S::kOutputs / kRowsAtOnce;
  static constexpr int kPixelTile = S::kPixels * kRowBytes, kOutputTile = S::kOutputs * kRowBytes;
  static constexpr int kStageBytes = kPixelTile + kOutputTile;
  static constexpr int kSlabs = S::kPixels / S::kWarpsY / 16;
  static constexpr int kColumns = S::kOutputs / S::kWarpsX;  // of a warp
  static constexpr int kTiles = kColumns / 8;
  static constexpr int kBufferBytes = kRowsBuffer<kColumns> * 4 * S::kWarpsY * S::kWarpsX;
  static constexpr int kSharedBytes =
      kBufferBytes > S::kStages* kStageBytes ? kBufferBytes : S::kStages* kStageBytes;
  static_assert(kPixelCopies * kRowsAtOnce == S::kPixels);
  static_assert(kOutputCopies * kRowsAtOnce == S::kOutputs);
  static_assert(kColumns % 16 == 0, "two tiles of weights come at once");

  struct alignas(16) Chunk {
    u32 words[4];
  };
  // The window's corner of a pixel of the result, which may lie outside of the image.
  struct Corner {
    i64 offset;
    int y, x;
  };

  const P& problem;
  const Element *image, *weights;
  unsigned char* memory;
  int first_pixel, first_output;
  int row, chunk;  // of this thread's first copy
  Corner corners[kPixelCopies];

  // Chunks of a row are exchanged so that eight rows of ldmatrix meet in no bank.
  static int place(int row, int chunk) { return row * kRowBytes + ((chunk ^ (row >> 1 & 3)) << 4); }

  void start() {
    row = threadIdx.x / kChunks;
    chunk = threadIdx.x % kChunks;
#pragma unroll
    for (int i = 0; i < kPixelCopies; ++i) {
      const int pixel = first_pixel + row + i * kRowsAtOnce;
      const int in_image = pixel % problem.kOutArea;
      const int y = in_image / problem.kOutWidth * problem.kStrideY - problem.kPadY;
      const int x = in_image % problem.kOutWidth * problem.kStrideX - problem.kPadX;
      const i64 of_image = i64(pixel / problem.kOutArea) * problem.kImageStep;
      corners[i] = {of_image + i64(y) * problem.kRowStep + i64(x) * problem.kColumnStep, y, x};
      if (pixel >= problem.kPixels) corners[i].y = -(1 << 30);
    }
  }

  // Calls copy(place in the stage, source, whether there is one) for each chunk of this thread.
  template <class Copy>
  void each_chunk(int step, Copy&& copy) const {
    const int depth = step * kBlock + chunk * kItems<Element>;
    const int tap = depth / problem.kChannels, channel = depth % problem.kChannels;
    const int down = tap / problem.kTapColumns * problem.kDilationY;
    const int right = tap % problem.kTapColumns * problem.kDilationX;
    const i64 shift = i64(down) * problem.kRowStep + right * problem.kColumnStep + channel +
                      first_channel<P>(problem, first_output);
    const bool is_tap = P::kIsWholeDepth || tap < problem.kTaps;
#pragma unroll
    for (int i = 0; i < kPixelCopies; ++i) {
      const bool is_inside = is_tap && static_cast<u32>(corners[i].y + down) < problem.kHeight &&
                             static_cast<u32>(corners[i].x + right) < problem.kWidth;
      copy(i, place(row + i * kRowsAtOnce, chunk),
           is_inside ? image + corners[i].offset + shift : image, is_inside);
    }
#pragma unroll
    for (int i = 0; i < kOutputCopies; ++i) {
      const int at = row + i * kRowsAtOnce, output = first_output + at;
      const bool is_inside = output < problem.kOutputs;
      copy(kPixelCopies + i, kPixelTile + place(at, chunk),
           weights + i64(is_inside ? output : 0) * problem.kDepth + depth, is_inside);
    }
  }

  void copy_stage(int step, int stage) const {
    const u32 to = shared_address(memory) + stage * kStageBytes;
    each_chunk(step, [&](int, int at, const Element* from, bool is_there) {
      copy_16(to + at, from, is_there ? 16 : 0);
    });
  }

  void multiply_stage(float (&sums)[kSlabs][kTiles][4], int stage) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int pixel = warp / S::kWarpsX * (kSlabs * 16), output = warp % S::kWarpsX * kColumns;
    const u32 pixels_at = shared_address(memory) + stage * kStageBytes;
    const u32 outputs_at = pixels_at + kPixelTile;
    const Place of_a = ldmatrix_row_of_a(lane);
#pragma unroll
    for (int k = 0; k < kChunks / 2; ++k) {
      u32 a[kSlabs][4], b[kTiles / 2][4];
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) {
        load_matrices(a[i], pixels_at + place(pixel + i * 16 + of_a.row, 2 * k + of_a.column / 8));
        round_operands<Element>(a[i]);
      }
      // Two tiles of eight outputs: the first half of the depth, then the other.
#pragma unroll
      for (int j = 0; j < kTiles / 2; ++j) {
        load_matrices(b[j], outputs_at + place(output + j * 16 + lane / 16 * 8 + lane % 8,
                                               2 * k + lane / 8 % 2));
        round_operands<Element>(b[j]);
      }
#pragma unroll
      for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int j = 0; j < kTiles; ++j)
          multiply_step<Element, S::kIsAsync>(sums[i][j], a[i], b[j / 2][j % 2 * 2],
                                              b[j / 2][j % 2 * 2 + 1]);
    }
  }

  void multiply_async(float (&sums)[kSlabs][kTiles][4], int begin, int end) const {
#pragma unroll
    for (int stage = 0; stage < S::kStages - 1; ++stage) {
      if (begin + stage < end) copy_stage(begin + stage, stage);
      copy_commit();
    }
    for (int step = begin, stage = 0; step < end; ++step) {
      copy_wait<S::kStages - 2>();
      __syncthreads();
      const int next = step + S::kStages - 1;
      if (next < end) copy_stage(next, stage == 0 ? S::kStages - 1 : stage - 1);
      copy_commit();
      multiply_stage(sums, stage);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
    copy_wait<0>();
  }

  void multiply_staged(float (&sums)[kSlabs][kTiles][4], int begin, int end) const {
    static_assert(S::kIsAsync || S::kStages == 2);
    Chunk chunks[kPixelCopies + kOutputCopies];
    int places[kPixelCopies + kOutputCopies];
    const auto fetch = [&](int step) {
      each_chunk(step, [&](int i, int at, const Element* from, bool is_there) {
        chunks[i] = is_there ? *reinterpret_cast<const Chunk*>(from) : Chunk{};
        places[i] = at;
      });
    };
    const auto put = [&](int stage) {
#pragma unroll
      for (int i = 0; i < kPixelCopies + kOutputCopies; ++i)
        *reinterpret_cast<Chunk*>(memory + stage * kStageBytes + places[i]) = chunks[i];
    };
    fetch(begin);
    put(0);
    __syncthreads();
    for (int step = begin, stage = 0; step < end; ++step, stage ^= 1) {
      if (step + 1 < end) fetch(step + 1);
      multiply_stage(sums, stage);
      if (step + 1 < end) put(stage ^ 1);
      __syncthreads();
    }
  }

  /// `part`: of the depth.
  static void run(const P& problem, const Element* image, const Element* weights, const E& epilogue,
                  int part) {
    extern __shared__ __align__(128) unsigned char memory[];
    const int block = static_cast<int>(blockIdx.x);
    ConvMma conv{problem, image, weights, memory};
    conv.first_pixel = block / problem.kOutputBlocks * S::kPixels;
    conv.first_output = block % problem.kOutputBlocks * S::kOutputs;
    launch_next();
    conv.start();
    wait_for_previous();
    float sums[kSlabs][kTiles][4] = {};
    const int begin = problem.kSteps * part / S::kParts;
    const int end = problem.kSteps * (part + 1) / S::kParts;
    if constexpr (S::kIsAsync)
      conv.multiply_async(sums, begin, end);
    else
      conv.multiply_staged(sums, begin, end);
    __syncthreads();  // the tiles' memory is the epilogue's now
    const int warp = threadIdx.x / 32;
    float* buffer = reinterpret_cast<float*>(memory) + warp * kRowsBuffer<kColumns>;
#pragma unroll
    for (int slab = 0; slab < kSlabs; ++slab)
      finish_rows<kColumns>(sums[slab], buffer,
                            conv.first_pixel + (warp / S::kWarpsX * kSlabs + slab) * 16,
                            conv.first_output + warp % S::kWarpsX * kColumns, problem.kPixels,
                            problem.kOutputs, epilogue);
  }
};

}  // namespace tensor::device

// Products of 16-bit factors with mma.sync, on every GPU with Tensor Cores: tiles in a ring in
// shared memory, by cp.async where a factor lies in chunks of 16 bytes and there is such an
// instruction, otherwise through registers; ldmatrix brings them to the lanes whichever axis lies
// innermost.
#pragma once

#include "gemm_tile.h"

namespace tensor::device {

/// S also names kWarpsY, kWarpsX, kStages, kWide (mma of 16 of depth), kRightFirst (it is constant
/// and comes while the kernel ahead still runs), Left and Right: factors with kTurned, kChunk,
/// kIsAsync.
template <class S, class P, class Epilogue>
struct GemmMma {
  using Left = typename S::Left;
  using Right = typename S::Right;
  using Element = typename Left::Element;
  using Tile = GemmTile<S, P, Epilogue>;
  static constexpr int kBlock = 32;
  static constexpr int kThreads = 32 * S::kWarpsY * S::kWarpsX;
  static constexpr int kPad = 8;  // 16 bytes, so that eight rows of ldmatrix meet in no bank
  using LeftTile =
      FactorTile<Left, Element, S::kRows, kBlock, kThreads, Left::kTurned, Left::kChunk, kPad>;
  using RightTile = FactorTile<Right, Element, S::kColumns, kBlock, kThreads, Right::kTurned,
                               Right::kChunk, kPad>;
  static constexpr int kStageBytes = LeftTile::kBytes + RightTile::kBytes;
  static constexpr int kSharedBytes = S::kStages * kStageBytes;
  static constexpr int kSlabs = S::kRows / S::kWarpsY / 16;
  static constexpr int kColumns = S::kColumns / S::kWarpsX;  // of a warp
  static constexpr int kUnits = kColumns / 8;
  static constexpr int kSteps = (P::kDepth + kBlock - 1) / kBlock;
  static_assert(kSlabs * 16 * S::kWarpsY == S::kRows && kColumns % 16 == 0);
  static_assert(S::kStages >= 2);

  const Element *left, *right;
  unsigned char* memory;
  Tile tile;

  Element* left_at(int stage) const {
    return reinterpret_cast<Element*>(memory + stage * kStageBytes);
  }
  Element* right_at(int stage) const {
    return reinterpret_cast<Element*>(memory + stage * kStageBytes + LeftTile::kBytes);
  }

  void copy_left(int step, int stage) const {
    if constexpr (Left::kIsAsync)
      LeftTile::copy_later(shared_address(left_at(stage)), left, tile.row, step * kBlock);
  }
  void copy_right(int step, int stage) const {
    if constexpr (Right::kIsAsync)
      RightTile::copy_later(shared_address(right_at(stage)), right, tile.feature, step * kBlock);
  }
  // What does not come by itself.
  struct Pieces {
    typename LeftTile::Piece left[LeftTile::kEach];
    typename RightTile::Piece right[RightTile::kEach];
  };
  void fetch(Pieces& pieces, int step) const {
    if constexpr (!Left::kIsAsync) LeftTile::fetch(pieces.left, left, tile.row, step * kBlock);
    if constexpr (!Right::kIsAsync)
      RightTile::fetch(pieces.right, right, tile.feature, step * kBlock);
  }
  void put(const Pieces& pieces, int stage) const {
    if constexpr (!Left::kIsAsync) LeftTile::put(left_at(stage), pieces.left, left);
    if constexpr (!Right::kIsAsync) RightTile::put(right_at(stage), pieces.right, right);
  }

  void multiply(float (&sums)[kSlabs][kUnits][4], int stage) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / S::kWarpsX * (kSlabs * 16), feature = warp % S::kWarpsX * kColumns;
    const int eighth = lane / 8, within = lane % 8;
    const Element *rows = left_at(stage), *columns = right_at(stage);
#pragma unroll
    for (int k = 0; k < kBlock; k += 16) {
      u32 a[kSlabs][4], b[kUnits / 2][4];
      // The four quarters of a: upper and lower rows, then those of the next eight of depth.
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) {
        const int r = row + 16 * i + eighth % 2 * 8, d = k + eighth / 2 * 8;
        if constexpr (Left::kTurned)
          load_matrices_transposed(a[i], shared_address(rows + LeftTile::place(r, d + within)));
        else
          load_matrices(a[i], shared_address(rows + LeftTile::place(r + within, d)));
      }
      // Two units of b: eight of depth, the next eight, then those of the next eight features.
#pragma unroll
      for (int j = 0; j < kUnits / 2; ++j) {
        const int f = feature + 16 * j + eighth / 2 * 8, d = k + eighth % 2 * 8;
        if constexpr (Right::kTurned)
          load_matrices_transposed(b[j], shared_address(columns + RightTile::place(f, d + within)));
        else
          load_matrices(b[j], shared_address(columns + RightTile::place(f + within, d)));
      }
#pragma unroll
      for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int j = 0; j < kUnits; ++j) {
          const u32 low = b[j / 2][j % 2 * 2], high = b[j / 2][j % 2 * 2 + 1];
          if constexpr (S::kWide) {
            Element::multiply(sums[i][j], a[i], {low, high});
          } else {
            Element::multiply(sums[i][j], {a[i][0], a[i][1]}, {low});
            Element::multiply(sums[i][j], {a[i][2], a[i][3]}, {high});
          }
        }
    }
  }

  void multiply_all(float (&sums)[kSlabs][kUnits][4]) const {
    constexpr bool kWaits = Left::kIsAsync || Right::kIsAsync;
    constexpr int kAhead = S::kStages - 1;
    const int begin = tile.first_step(kSteps), end = tile.last_step(kSteps);
    Pieces pieces;
    if constexpr (S::kRightFirst)
      for (int i = 0; i < kAhead && begin + i < end; ++i) copy_right(begin + i, i);
    wait_for_previous();
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i < end) {
        copy_left(begin + i, i);
        if constexpr (!S::kRightFirst) copy_right(begin + i, i);
        fetch(pieces, begin + i);
        put(pieces, i);
      }
      if constexpr (kWaits) copy_commit();
    }
    for (int step = begin, stage = 0; step < end; ++step) {
      if constexpr (kWaits) copy_wait<kAhead - 1>();
      __syncthreads();  // this stage is there, and all have left the one before it
      const int next = step + kAhead, free = stage == 0 ? S::kStages - 1 : stage - 1;
      if (next < end) {
        copy_left(next, free);
        copy_right(next, free);
        fetch(pieces, next);
      }
      if constexpr (kWaits) copy_commit();
      multiply(sums, stage);
      if (next < end) put(pieces, free);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
  }

  static void run(const Element* left, const Element* right, float* partials,
                  const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Tile tile = Tile::of_block(static_cast<int>(blockIdx.x));
    const GemmMma gemm{left + Left::at(tile.batch), right + Right::at(tile.batch), memory, tile};
    float sums[kSlabs][kUnits][4] = {};
    gemm.multiply_all(sums);
    launch_next();
    constexpr Fragment kSums = kMma16x8x16.d;
    const Place mine = kSums.of_lane(threadIdx.x % 32);
    const int warp = threadIdx.x / 32;
    const int row = tile.row + warp / S::kWarpsX * (kSlabs * 16) + mine.row;
    const int feature = tile.feature + warp % S::kWarpsX * kColumns + mine.column;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float line[2 * kUnits];
#pragma unroll
        for (int j = 0; j < 2 * kUnits; ++j) line[j] = sums[i][j / 2][2 * half + j % 2];
        tile.template finish<kUnits, 8>(epilogue, partials, line, row + 16 * i + 8 * half, feature);
      }
  }
};

}  // namespace tensor::device

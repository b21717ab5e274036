// Products on the ordinary cores, in float32 throughout, or of i8 in ints: what must be exact, and
// types that a GPU's Tensor Cores do not have.
#pragma once

#include "gemm_ring.h"
#include "plain_warp.h"

namespace tensor::device {

/// S also names kWarpsY, kWarpsX; kSlices, as many times the warps, which share the depth of a
/// step, so that a small tile keeps many warps busy and each has many sums; kDepth of a step;
/// kStages, kRightFirst; Left and Right: factors with kTurned, kChunk and kIsAsync.
template <class S, class P, class Epilogue>
struct GemmPlain {
  using Left = typename S::Left;
  using Right = typename S::Right;
  using Sum = SumOf<typename Left::Element>;  // and what factors are in shared memory
  using Tile = GemmTile<S, P, Epilogue>;
  static constexpr int kWarps = S::kWarpsY * S::kWarpsX, kThreads = 32 * kWarps * S::kSlices;
  // Both with the depth outermost, whichever axis lies so in memory. The padding lets elements that
  // are turned over come to all banks, and keeps fours together.
  template <class Factor, int kTileRows>
  using TileOf = FactorTile<Factor, Sum, kTileRows, S::kDepth, kThreads, Factor::kTurned,
                            Factor::kChunk, 4, true>;
  using LeftTile = TileOf<Left, S::kRows>;
  using RightTile = TileOf<Right, S::kColumns>;
  using Ring = GemmRing<S, LeftTile, RightTile, S::kDepth>;
  static constexpr int kDown = S::kRows / S::kWarpsY / 4, kAcross = S::kColumns / S::kWarpsX / 8;
  using Warp = PlainWarp<Sum, kDown, kAcross, LeftTile::kPitch, RightTile::kPitch>;
  static_assert(Warp::kRows * S::kWarpsY == S::kRows && Warp::kColumns * S::kWarpsX == S::kColumns);
  static_assert(kDown % 4 == 0 && kAcross % 4 == 0, "a lane has lines in fours");

  // Sums go to rows of the result through shared memory, where slices add up.
  static constexpr int kPitch =
      S::kColumns + 4;  // rows that a warp writes together meet in no bank
  static constexpr int kSliceSums = S::kRows * kPitch;
  static constexpr int kSumBytes = S::kSlices * kSliceSums * sizeof(Sum);
  static constexpr int kSharedBytes = Ring::kBytes > kSumBytes ? Ring::kBytes : kSumBytes;

  static void put(Sum* to, const Warp& warp, int row, int column) {
#pragma unroll
    for (int i = 0; i < kDown; ++i)
      Warp::store_row(to + (row + Warp::row(i)) * kPitch + column, warp.sums[i]);
  }

  // Four pairs of a row for each thread at a time, a quarter of the columns apart.
  static void finish(const Tile& tile, const Epilogue& epilogue, Sum* partials, const Sum* from) {
    constexpr int kPairs = 4, kStep = S::kColumns / kPairs, kLanes = kStep / 2;
#pragma unroll 1
    for (int i = threadIdx.x; i < S::kRows * kLanes; i += kThreads) {
      const int row = i / kLanes, column = i % kLanes * 2;
      Sum line[2 * kPairs] = {};
#pragma unroll
      for (int slice = 0; slice < S::kSlices; ++slice)
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          const auto pair = *reinterpret_cast<const Pack<Sum, 2>*>(
              from + slice * kSliceSums + row * kPitch + column + j * kStep);
          line[2 * j] += pair.items[0], line[2 * j + 1] += pair.items[1];
        }
      tile.template finish<kPairs, kStep>(epilogue, partials, line, tile.row + row,
                                          tile.feature + column);
    }
  }

  static void run(const P& problem, const FactorMemory<Left>& left,
                  const FactorMemory<Right>& right, Sum* partials, const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Tile tile = Tile::of_block(problem, static_cast<int>(blockIdx.x));
    const Ring ring{left.matrix(tile.batch), right.matrix(tile.batch), memory, tile.row,
                    tile.feature};
    constexpr int kMine = S::kDepth / S::kSlices;  // of a step's depth
    const int slice = threadIdx.x / (32 * kWarps), number = threadIdx.x / 32 % kWarps;
    const int row = number / S::kWarpsX * Warp::kRows;
    const int column = number % S::kWarpsX * Warp::kColumns;
    Warp warp;
    ring.run(tile.first_step(), tile.last_step(), [&](const Sum* rows, const Sum* columns) {
      warp.template multiply<kMine>(rows + LeftTile::place(row, slice * kMine),
                                    columns + RightTile::place(column, slice * kMine));
    });
    launch_next();
    __syncthreads();  // all have left the ring
    Sum* const all = reinterpret_cast<Sum*>(memory);
    put(all + slice * kSliceSums, warp, row, column);
    __syncthreads();
    finish(tile, epilogue, partials, all);
  }
};

}  // namespace tensor::device

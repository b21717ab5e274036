// Products with mma.sync of 16-bit factors, on every GPU with Tensor Cores, or of float32 rounded
// to tf32, or of i8, from sm_80 on: tiles in a ring in shared memory, by cp.async where a factor
// lies in chunks of 16 bytes; ldmatrix brings them to the lanes whichever axis lies innermost.
#pragma once

#include "gemm_ring.h"
#include "mma.h"

namespace tensor::device {

/// S also names kWarpsY, kWarpsX, kStages, kWide (mma of 16 of depth), kRightFirst (it is constant
/// and comes while the kernel ahead still runs), Left and Right: factors with kTurned, kChunk,
/// kIsAsync.
template <class S, class P, class Epilogue>
struct GemmMma {
  using Left = typename S::Left;
  using Right = typename S::Right;
  using Element = typename Left::Element;
  using Sum = SumOf<Element>;
  using Tile = GemmTile<S, P, Epilogue>;
  static constexpr int kBlock = 64 / sizeof(Element);
  static constexpr int kThreads = 32 * S::kWarpsY * S::kWarpsX;
  // 16 bytes, so that eight rows of ldmatrix meet in no bank. Floats whose rows lie side by side,
  // which ldmatrix cannot turn, are read in eight of a row and four of depth.
  template <class Factor>
  static constexpr int kPad = Factor::kTurned ? 8 : kItems<Element>;
  template <class Factor, int kTileRows>
  using TileOf = FactorTile<Factor, Element, kTileRows, kBlock, kThreads, Factor::kTurned,
                            Factor::kChunk, kPad<Factor>>;
  using LeftTile = TileOf<Left, S::kRows>;
  using RightTile = TileOf<Right, S::kColumns>;
  using Ring = GemmRing<S, LeftTile, RightTile, kBlock>;
  static constexpr int kSharedBytes = Ring::kBytes;
  static constexpr int kSlabs = S::kRows / S::kWarpsY / 16;
  static constexpr int kColumns = S::kColumns / S::kWarpsX;  // of a warp
  static constexpr int kUnits = kColumns / 8;
  static_assert(kSlabs * 16 * S::kWarpsY == S::kRows && kColumns % 16 == 0);
  static_assert(!kIsBytes<Element> || !(Left::kTurned || Right::kTurned), "ldmatrix turns pairs");

  // Four matrices of eight rows by 16 bytes of depth from row and depth on: first the lower rows
  // and then more of depth, or, of the right factor, the other way round.
  template <class FactorOfTile, bool kIsLeft>
  static void load_quarters(u32 (&to)[4], const Element* tile, int row, int depth) {
    constexpr int kWidth = kItems<Element>;
    const int lane = threadIdx.x % 32;
    if constexpr (kIsTf32<Element> && FactorOfTile::kIsTurned) {
      const Place mine = place_of_lane(lane, 1);  // of operand a, and turned of b
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place of_a = kMma16x8x8Tf32.a.of_element(i),
                    of_b = kMma16x8x8Tf32.b.of_element(i % 2);
        const int r = row + mine.row + (kIsLeft ? of_a.row : i / 2 * 8 + of_b.column);
        const int d = depth + mine.column + (kIsLeft ? of_a.column : of_b.row);
        to[i] = __float_as_uint(tile[FactorOfTile::place(r, d)]);
      }
    } else {
      const int eighth = lane / 8, within = lane % 8;
      const int r = row + (kIsLeft ? eighth % 2 : eighth / 2) * 8;
      const int d = depth + (kIsLeft ? eighth / 2 : eighth % 2) * kWidth;
      if constexpr (FactorOfTile::kIsTurned)
        load_matrices_transposed(to, shared_address(tile + FactorOfTile::place(r, d + within)));
      else
        load_matrices(to, shared_address(tile + FactorOfTile::place(r + within, d)));
    }
    round_operands<Element>(to);
  }

  static void multiply(Sum (&sums)[kSlabs][kUnits][4], const Element* rows,
                       const Element* columns) {
    const int warp = threadIdx.x / 32;
    const int row = warp / S::kWarpsX * (kSlabs * 16), feature = warp % S::kWarpsX * kColumns;
#pragma unroll
    for (int k = 0; k < kBlock; k += 2 * kItems<Element>) {
      u32 a[kSlabs][4], b[kUnits / 2][4];
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) load_quarters<LeftTile, true>(a[i], rows, row + 16 * i, k);
#pragma unroll
      for (int j = 0; j < kUnits / 2; ++j)
        load_quarters<RightTile, false>(b[j], columns, feature + 16 * j, k);
#pragma unroll
      for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int j = 0; j < kUnits; ++j)
          multiply_step<Element, S::kWide>(sums[i][j], a[i], b[j / 2][j % 2 * 2],
                                           b[j / 2][j % 2 * 2 + 1]);
    }
  }

  static void run(const P& problem, const FactorMemory<Left>& left,
                  const FactorMemory<Right>& right, Sum* partials, const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Tile tile = Tile::of_block(problem, static_cast<int>(blockIdx.x));
    const Ring ring{left.matrix(tile.batch), right.matrix(tile.batch), memory, tile.row,
                    tile.feature};
    Sum sums[kSlabs][kUnits][4] = {};
    ring.run(tile.first_step(), tile.last_step(),
             [&](const Element* rows, const Element* columns) { multiply(sums, rows, columns); });
    launch_next();
    const Place mine = kWarpSums.of_lane(threadIdx.x % 32);
    const int warp = threadIdx.x / 32;
    const int row = tile.row + warp / S::kWarpsX * (kSlabs * 16) + mine.row;
    const int feature = tile.feature + warp % S::kWarpsX * kColumns + mine.column;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Sum line[2 * kUnits];
#pragma unroll
        for (int j = 0; j < 2 * kUnits; ++j) line[j] = sums[i][j / 2][2 * half + j % 2];
        tile.template finish<kUnits, 8>(epilogue, partials, line, row + 16 * i + 8 * half, feature);
      }
  }
};

}  // namespace tensor::device

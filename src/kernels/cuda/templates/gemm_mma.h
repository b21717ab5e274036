// Products with mma.sync of 16-bit factors, on every GPU with Tensor Cores, or of float32 rounded
// to tf32, or of i8, from sm_80 on: tiles in a ring in shared memory, by cp.async where a factor
// lies in chunks of 16 bytes and there is such an instruction, otherwise through registers;
// ldmatrix brings them to the lanes whichever axis lies innermost.
#pragma once

#include "gemm_tile.h"
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
  static constexpr int kStageBytes = LeftTile::kBytes + RightTile::kBytes;
  static constexpr int kSharedBytes = S::kStages * kStageBytes;
  static constexpr int kSlabs = S::kRows / S::kWarpsY / 16;
  static constexpr int kColumns = S::kColumns / S::kWarpsX;  // of a warp
  static constexpr int kUnits = kColumns / 8;
  static_assert(kSlabs * 16 * S::kWarpsY == S::kRows && kColumns % 16 == 0);
  static_assert(S::kStages >= 2);
  static_assert(!kIsBytes<Element> || !(Left::kTurned || Right::kTurned), "ldmatrix turns pairs");

  FactorMemory<Left> left;
  FactorMemory<Right> right;
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

  void multiply(Sum (&sums)[kSlabs][kUnits][4], int stage) const {
    const int warp = threadIdx.x / 32;
    const int row = warp / S::kWarpsX * (kSlabs * 16), feature = warp % S::kWarpsX * kColumns;
    const Element *rows = left_at(stage), *columns = right_at(stage);
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

  void multiply_all(Sum (&sums)[kSlabs][kUnits][4]) const {
    constexpr bool kWaits = Left::kIsAsync || Right::kIsAsync;
    constexpr int kAhead = S::kStages - 1;
    const int begin = tile.first_step(), end = tile.last_step();
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

  static void run(const P& problem, const FactorMemory<Left>& left,
                  const FactorMemory<Right>& right, Sum* partials, const Epilogue& epilogue) {
    extern __shared__ __align__(128) unsigned char memory[];
    const Tile tile = Tile::of_block(problem, static_cast<int>(blockIdx.x));
    const GemmMma gemm{left.matrix(tile.batch), right.matrix(tile.batch), memory, tile};
    Sum sums[kSlabs][kUnits][4] = {};
    gemm.multiply_all(sums);
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

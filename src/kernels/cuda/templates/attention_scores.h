// The first product of attention with mma.sync, and tiles of its operands in shared memory: a warp
// has the scores of 16 queries, or of several times 16, and of a block of keys in registers. Tiles
// come by cp.async, or before sm_80 through registers.
#pragma once

#include "fragments.h"
#include "gemm_tile.h"
#include "mma.h"

namespace tensor::device {

/// S names the schedule:
///   Element of queries and keys
///   kWarps of a block, kSlabs of 16 queries that each of them has
///   kBlock: keys of a block
///   kIsAsync: there is cp.async, and mma of 16 of depth
///   kKept: queries stay in registers from block to block
/// P is the problem: kDepth, and the types of the factors Queries and Keys.
template <class S, class P>
struct AttentionScores {
  using Element = typename S::Element;
  static constexpr int kThreads = 32 * S::kWarps;
  static constexpr int kTile = 16 * S::kSlabs * S::kWarps;  // queries of a block
  static constexpr int kUnits = S::kBlock / 8;              // of eight keys
  static constexpr int kSteps = (P::kDepth + 15) / 16;      // of the depth
  static constexpr int kPad = 8;  // 16 bytes, so that eight rows of ldmatrix meet in no bank
  template <class Factor, int kRows, int kWidth>
  using TileOf = FactorTile<Factor, Element, kRows, kWidth, kThreads, false, 8, kPad>;
  using QueryTile = TileOf<typename P::Queries, kTile, 16 * kSteps>;
  using KeyTile = TileOf<typename P::Keys, S::kBlock, 16 * kSteps>;
  static_assert(S::kBlock % 16 == 0);

  using Scores = float[S::kSlabs][kUnits][4];
  static constexpr int kKeptSteps = S::kKept ? kSteps : 1;
  using Queries = u32[S::kSlabs][kKeptSteps][4];

  static int own_query() { return threadIdx.x / 32 * (16 * S::kSlabs); }  // of the tile

  template <class Tile, class Factor>
  static void load(Element* to, const FactorMemory<Factor>& from, int row) {
    if constexpr (S::kIsAsync)
      Tile::copy_later(shared_address(to), from, row, 0);
    else
      Tile::copy_now(to, from, row, 0);
  }

  static void load_queries(Queries& q, const Element* tile, int place, int step) {
    const Place of_a = ldmatrix_row_of_a(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < S::kSlabs; ++i)
      load_matrices(q[i][place],
                    shared_address(tile + QueryTile::place(own_query() + 16 * i + of_a.row,
                                                           16 * step + of_a.column)));
  }
  static void keep_queries(Queries& q, const Element* tile) {
#pragma unroll
    for (int step = 0; step < kKeptSteps; ++step) load_queries(q, tile, step, step);
  }

  static void multiply(Scores& s, Queries& q, const Element* queries, const Element* keys) {
    const Place of_b = ldmatrix_row_of_b(threadIdx.x % 32);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int place = S::kKept ? step : 0;
      if constexpr (!S::kKept) load_queries(q, queries, 0, step);
        // Two units of keys: eight of depth, the next eight, then those of the next eight keys.
#pragma unroll
      for (int pair = 0; pair < kUnits / 2; ++pair) {
        u32 b[4];
        load_matrices(b, shared_address(
                             keys + KeyTile::place(16 * pair + of_b.row, 16 * step + of_b.column)));
#pragma unroll
        for (int i = 0; i < S::kSlabs; ++i)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            multiply_step<Element, S::kIsAsync>(s[i][2 * pair + j], q[i][place], b[2 * j],
                                                b[2 * j + 1], 16 * step + 8 < P::kDepth);
      }
    }
  }
};

}  // namespace tensor::device

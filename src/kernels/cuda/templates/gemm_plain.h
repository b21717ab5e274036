// Products on the ordinary cores, in float32 throughout, or of i8 in ints: what must be exact, and
// types that a GPU's Tensor Cores do not have. Tiles in shared memory with the depth outermost, a
// block of sums in each thread's registers.
#pragma once

#include "gemm_tile.h"

namespace tensor::device {

/// S also names kThreadsY, kThreadsX, Left and Right: factors with kTurned and kChunk.
template <class S, class P, class Epilogue>
struct GemmPlain {
  using Left = typename S::Left;
  using Right = typename S::Right;
  using Sum = SumOf<typename Left::Element>;  // and what factors are in shared memory
  using Tile = GemmTile<S, P, Epilogue>;
  static constexpr int kBlock = 16;
  static constexpr int kThreads = S::kThreadsY * S::kThreadsX;
  static constexpr int kDown = S::kRows / S::kThreadsY, kAcross = S::kColumns / S::kThreadsX;
  static_assert(kDown % 4 == 0 && kAcross % 4 == 0, "four sums lie together");
  static constexpr int kPad = 4;
  // How they come from memory; in shared memory both lie with the depth outermost.
  using LeftTile =
      FactorTile<Left, Sum, S::kRows, kBlock, kThreads, Left::kTurned, Left::kChunk, 0>;
  using RightTile =
      FactorTile<Right, Sum, S::kColumns, kBlock, kThreads, Right::kTurned, Right::kChunk, 0>;

  struct alignas(16) Four {
    Sum items[4];
  };
  struct Stage {
    Sum left[kBlock][S::kRows + kPad], right[kBlock][S::kColumns + kPad];
  };

  template <class F, int kPitch, class Factor>
  static void put(Sum (&to)[kBlock][kPitch], const typename F::Piece (&pieces)[F::kEach],
                  const FactorMemory<Factor>& factor) {
    F::each_chunk(factor, 0, 0, [&](int i, int at, const auto*, int) {
#pragma unroll
      for (int j = 0; j < F::kItems; ++j) {
        const int line = at / F::kAcross, along = at % F::kAcross + j;
        to[F::kIsTurned ? line : along][F::kIsTurned ? along : line] = value_of(pieces[i].items[j]);
      }
    });
  }

  static void add_product(float& sum, float a, float b) { sum = fmaf(a, b, sum); }
  static void add_product(int& sum, int a, int b) { sum += a * b; }

  static void multiply(Sum (&sums)[kDown][kAcross], const Stage& stage) {
    const int y = threadIdx.x / S::kThreadsX * 4, x = threadIdx.x % S::kThreadsX * 4;
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
      Four a[kDown / 4], b[kAcross / 4];
#pragma unroll
      for (int i = 0; i < kDown / 4; ++i)
        a[i] = *reinterpret_cast<const Four*>(&stage.left[k][4 * S::kThreadsY * i + y]);
#pragma unroll
      for (int j = 0; j < kAcross / 4; ++j)
        b[j] = *reinterpret_cast<const Four*>(&stage.right[k][4 * S::kThreadsX * j + x]);
#pragma unroll
      for (int i = 0; i < kDown; ++i)
#pragma unroll
        for (int j = 0; j < kAcross; ++j)
          add_product(sums[i][j], a[i / 4].items[i % 4], b[j / 4].items[j % 4]);
    }
  }

  static void run(const P& problem, const FactorMemory<Left>& lefts_of_all,
                  const FactorMemory<Right>& rights_of_all, Sum* partials,
                  const Epilogue& epilogue) {
    __shared__ alignas(16) Stage stages[2];
    const Tile tile = Tile::of_block(problem, static_cast<int>(blockIdx.x));
    const auto left = lefts_of_all.matrix(tile.batch);
    const auto right = rights_of_all.matrix(tile.batch);
    wait_for_previous();
    const int begin = tile.first_step(), end = tile.last_step();
    typename LeftTile::Piece lefts[LeftTile::kEach];
    typename RightTile::Piece rights[RightTile::kEach];
    const auto fetch = [&](int step) {
      LeftTile::fetch(lefts, left, tile.row, step * kBlock);
      RightTile::fetch(rights, right, tile.feature, step * kBlock);
    };
    const auto put_both = [&](int stage) {
      put<LeftTile>(stages[stage].left, lefts, left);
      put<RightTile>(stages[stage].right, rights, right);
    };
    Sum sums[kDown][kAcross] = {};
    if (begin < end) {
      fetch(begin);
      put_both(0);
    }
    __syncthreads();
    for (int step = begin, stage = 0; step < end; ++step, stage ^= 1) {
      if (step + 1 < end) fetch(step + 1);
      multiply(sums, stages[stage]);
      if (step + 1 < end) put_both(stage ^ 1);
      __syncthreads();
    }
    launch_next();
    const int row = tile.row + threadIdx.x / S::kThreadsX * 4;
    const int feature = tile.feature + threadIdx.x % S::kThreadsX * 4;
#pragma unroll
    for (int i = 0; i < kDown; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; j += 4) {
        const Sum line[4] = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
        tile.template finish<2, 2>(epilogue, partials, line,
                                   row + i / 4 * (4 * S::kThreadsY) + i % 4,
                                   feature + j * S::kThreadsX);
      }
  }
};

}  // namespace tensor::device

// How both factors of a product on registers come to shared memory: a ring of stages, by cp.async
// where there is such an instruction and a factor is held as it lies, otherwise through registers.
#pragma once

#include "gemm_tile.h"

namespace tensor::device {

/// S names the schedule: kStages, kRightFirst (the right factor is constant and comes while the
/// kernel ahead still runs), Left and Right: factors with kIsAsync. The tiles, FactorTile, are
/// kDepth deep.
template <class S, class LeftTile, class RightTile, int kDepth>
struct GemmRing {
  using Left = typename S::Left;
  using Right = typename S::Right;
  using LeftHeld = typename LeftTile::Held;
  using RightHeld = typename RightTile::Held;
  static constexpr int kStageBytes = LeftTile::kBytes + RightTile::kBytes;
  static constexpr int kBytes = S::kStages * kStageBytes;
  static_assert(S::kStages >= 2);

  FactorMemory<Left> left;
  FactorMemory<Right> right;
  unsigned char* memory;
  int row, feature;  // at which the tiles begin

  LeftHeld* left_at(int stage) const {
    return reinterpret_cast<LeftHeld*>(memory + stage * kStageBytes);
  }
  RightHeld* right_at(int stage) const {
    return reinterpret_cast<RightHeld*>(memory + stage * kStageBytes + LeftTile::kBytes);
  }

  void copy_left(int step, int stage) const {
    if constexpr (Left::kIsAsync)
      LeftTile::copy_later(shared_address(left_at(stage)), left, row, step * kDepth);
  }
  void copy_right(int step, int stage) const {
    if constexpr (Right::kIsAsync)
      RightTile::copy_later(shared_address(right_at(stage)), right, feature, step * kDepth);
  }
  // What does not come by itself.
  struct Pieces {
    typename LeftTile::Piece left[LeftTile::kEach];
    typename RightTile::Piece right[RightTile::kEach];
  };
  void fetch(Pieces& pieces, int step) const {
    if constexpr (!Left::kIsAsync) LeftTile::fetch(pieces.left, left, row, step * kDepth);
    if constexpr (!Right::kIsAsync) RightTile::fetch(pieces.right, right, feature, step * kDepth);
  }
  void put(const Pieces& pieces, int stage) const {
    if constexpr (!Left::kIsAsync) LeftTile::put(left_at(stage), pieces.left, left);
    if constexpr (!Right::kIsAsync) RightTile::put(right_at(stage), pieces.right, right);
  }

  /// Calls multiply(left tile, right tile) for each step from `begin` to `end`.
  template <class Multiply>
  void run(int begin, int end, Multiply&& multiply) const {
    constexpr bool kWaits = Left::kIsAsync || Right::kIsAsync;
    constexpr int kAhead = S::kStages - 1;
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
      multiply(left_at(stage), right_at(stage));
      if (next < end) put(pieces, free);
      stage = stage + 1 == S::kStages ? 0 : stage + 1;
    }
  }
};

}  // namespace tensor::device

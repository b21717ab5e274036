// Depthwise convolution: every channel has a window of its own, so there is no product to make.
// Neighbouring threads have neighbouring channels, and a thread has several pixels of a row, so
// that what it reads of a row and of the weights serves all of these.
#pragma once

#include "conv_tile.h"

namespace tensor::device {

/// A block has kStrips strips of kColumns pixels of kRows rows, and kLanes times kCount channels. P
/// names the problem: types Image and Weight; kHeight, kWidth and the image's steps kImageStep,
/// kChannelStep, kRowStep, kColumnStep, which is known when this is compiled; kOutHeight,
/// kOutWidth, kOutputs; kStrideY, kPadY, kPadX, kDilationY, and of columns, which are known when
/// this is compiled, kStrideX and kDilationX; the window's kTapRows and kTapColumns; kIsPacked of
/// the image as Channels has it. Blocks are counted by kChannelBlocks, kStripBlocks, kRowBlocks and
/// images. Weights are [tap, output], rows of kWeightRow, a multiple of 8, known as well.
template <class P, class E>
struct ConvDepthwise {
  static constexpr int kLanes = 8, kCount = P::kCount, kColumns = P::kColumns;
  // Columns of the image that a strip reads, where the steps leave none out.
  static constexpr int kReach =
      (kColumns - 1) * P::kStrideX + (P::kTapColumns - 1) * P::kDilationX + 1;
  using Item = Channels<typename P::Image, kCount, P::kIsPacked>;
  using Weights = Channels<typename P::Weight, kCount, true>;

  // The pixel of the strip that reads this column with this tap; -1: none.
  static constexpr int pixel_of(int column, int tap) {
    const int from = column - tap * P::kDilationX;
    return from >= 0 && from % P::kStrideX == 0 && from / P::kStrideX < kColumns
               ? from / P::kStrideX
               : -1;
  }
  static constexpr bool is_read(int column) {
    for (int tap = 0; tap < P::kTapColumns; ++tap)
      if (pixel_of(column, tap) >= 0) return true;
    return false;
  }

  // What a strip reads of a row, of which all, or not, is inside the image.
  template <bool kIsInside>
  static void read(Item (&items)[kReach], const P& problem, const typename P::Image* row, int first,
                   int left) {
    row += i64(first) * P::kColumnStep;
#pragma unroll
    for (int column = 0; column < kReach; ++column) {
      if (!is_read(column)) continue;
      if (kIsInside || static_cast<u32>(first + column) < problem.kWidth)
        items[column].load(row + column * P::kColumnStep, problem.kChannelStep, left);
      else
        items[column] = {};
    }
  }

  static void run(const P& problem, const typename P::Image* image,
                  const typename P::Weight* weights, const E& epilogue) {
    const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
    const int in_row = thread / kLanes;
    const int strips = block / problem.kChannelBlocks, rows = strips / problem.kStripBlocks;
    const int n = rows / problem.kRowBlocks;
    const int channel = (block % problem.kChannelBlocks * kLanes + thread % kLanes) * kCount;
    const int out_x = (strips % problem.kStripBlocks * P::kStrips + in_row % P::kStrips) * kColumns;
    const int out_y = rows % problem.kRowBlocks * P::kRows + in_row / P::kStrips;
    launch_next();
    wait_for_previous();
    if (channel >= problem.kOutputs || out_x >= problem.kOutWidth || out_y >= problem.kOutHeight)
      return;
    const int left = problem.kOutputs - channel;
    const int top = out_y * problem.kStrideY - problem.kPadY;
    const int first = out_x * P::kStrideX - problem.kPadX;
    image += i64(n) * problem.kImageStep + i64(channel) * problem.kChannelStep;
    weights += channel;
    const bool is_inside = first >= 0 && first + kReach <= problem.kWidth;
    float sums[kColumns][kCount] = {};
#pragma unroll 1
    for (int down = 0; down < P::kTapRows; ++down, weights += P::kTapColumns * P::kWeightRow) {
      const int y = top + down * problem.kDilationY;
      if (static_cast<u32>(y) >= problem.kHeight) continue;
      const auto* row = image + i64(y) * problem.kRowStep;
      Weights own[P::kTapColumns];
      Item items[kReach];
#pragma unroll
      for (int tap = 0; tap < P::kTapColumns; ++tap)
        own[tap].load(weights + tap * P::kWeightRow, 1, kCount);
      if (is_inside)
        read<true>(items, problem, row, first, left);
      else
        read<false>(items, problem, row, first, left);
#pragma unroll
      for (int column = 0; column < kReach; ++column)
#pragma unroll
        for (int tap = 0; tap < P::kTapColumns; ++tap) {
          const int pixel = pixel_of(column, tap);
          if (pixel < 0) continue;
#pragma unroll
          for (int i = 0; i < kCount; ++i)
            sums[pixel][i] = fmaf(float(items[column][i]), float(own[tap][i]), sums[pixel][i]);
        }
    }
    const auto line = epilogue.template line<kCount>(channel);
    const int at = (n * problem.kOutHeight + out_y) * problem.kOutWidth + out_x;
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      if (out_x + i < problem.kOutWidth)
        epilogue.template finish<kCount>(
            sums[i], line, epilogue.template pixel<kCount>(at + i, channel), at + i, channel);
  }
};

}  // namespace tensor::device

// Convolution on the cores for plain arithmetic: a tiled product over gathered pixels for float32
// and for what Tensor Cores cannot take, a loop for what has groups, and the copy
// that brings an image into the form that Tensor Cores want. Any element types and strides.
#pragma once

#include "conv_tile.h"

namespace tensor::device {

/// An image brought to `To`, channels last, kChannels of which those beyond kFrom are zeros, with
/// kPadY rows and kPadX columns of zeros around: [images, kOutHeight, kOutWidth, kChannels]. P
/// names the problem: From, To, the image's kHeight, kWidth and its steps kImageStep, kChannelStep,
/// kRowStep, kColumnStep. Each of kThreads threads has kPacked channels of a pixel, one of
/// its kGroups; kIsFar as for thread_number.
template <class P>
inline void pack_image(const P& problem, const typename P::From* image, typename P::To* packed) {
  constexpr int kGroup = P::kPacked;
  launch_next();
  wait_for_previous();
  const auto number = thread_number<P::kIsFar>();
  if (number >= problem.kThreads) return;
  const int column = static_cast<int>(number % problem.kOutWidth);
  const auto line = number / problem.kOutWidth;
  const int group = static_cast<int>(line % problem.kGroups);
  const int row = static_cast<int>(line / problem.kGroups % problem.kOutHeight);
  const int n = static_cast<int>(line / problem.kGroups / problem.kOutHeight);
  const int y = row - problem.kPadY, x = column - problem.kPadX;
  float values[kGroup] = {};
  if (static_cast<u32>(y) < problem.kHeight && static_cast<u32>(x) < problem.kWidth) {
    const auto* from = image + i64(n) * problem.kImageStep + i64(y) * problem.kRowStep +
                       i64(x) * problem.kColumnStep + i64(group) * kGroup * problem.kChannelStep;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (group * kGroup + i < problem.kFrom)
        values[i] = static_cast<float>(value_of(from[i64(i) * problem.kChannelStep]));
  }
  auto* to = packed +
             ((i64(n) * problem.kOutHeight + row) * problem.kOutWidth + column) * problem.kChannels;
  store_channels<true>(to + group * kGroup, values, 1, kGroup);
}

/// The windows of the result's pixels as rows of a matrix [kPixels, kRow], in the order of weights:
/// [channel, row, column], then zeros. For windows that do not overlap, which so lie in memory
/// once. P is pack_image's and names the window and the result as ConvMma's does. A thread has
/// eight neighbours of a row, one of its kGroups.
template <class P>
inline void pack_patches(const P& problem, const typename P::From* image, typename P::To* packed) {
  launch_next();
  wait_for_previous();
  const auto number = thread_number<P::kIsFar>();
  if (number >= problem.kThreads) return;
  const int pixel = static_cast<int>(number / problem.kGroups);
  const int first = static_cast<int>(number % problem.kGroups) * 8;
  const int in_image = pixel % problem.kOutArea;
  const int top = in_image / problem.kOutWidth * problem.kStrideY - problem.kPadY;
  const int left = in_image % problem.kOutWidth * problem.kStrideX - problem.kPadX;
  image += i64(pixel / problem.kOutArea) * problem.kImageStep;
  float values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int channel = (first + i) / problem.kTaps, tap = (first + i) % problem.kTaps;
    const int y = top + tap / problem.kTapColumns * problem.kDilationY;
    const int x = left + tap % problem.kTapColumns * problem.kDilationX;
    const bool is_inside = channel < problem.kFrom && static_cast<u32>(y) < problem.kHeight &&
                           static_cast<u32>(x) < problem.kWidth;
    values[i] = is_inside ? static_cast<float>(value_of(
                                image[i64(channel) * problem.kChannelStep +
                                      i64(y) * problem.kRowStep + i64(x) * problem.kColumnStep]))
                          : 0.f;
  }
  store_channels<true>(packed + i64(pixel) * problem.kRow + first, values, 1, 8);
}

/// Weights [kOutputs, kChannels, taps, kTapColumns] of any steps as a matrix with rows of kRow
/// elements, kThreads in all: of outputs by depth, or turned if kIsTurned. Along the depth lie
/// groups of kGroup elements, which begin with kGroupTaps neighbouring taps of kGroupChannels each;
/// or all taps of one channel after the other if kArePatches. What is no weight is zero. A thread
/// has an element.
template <class P>
inline void pack_weights(const P& problem, const typename P::Element* weights,
                         typename P::Element* packed) {
  launch_next();
  wait_for_previous();
  const auto number = thread_number<P::kIsFar>();
  if (number >= problem.kThreads) return;
  const int line = static_cast<int>(number / problem.kRow),
            place = static_cast<int>(number % problem.kRow);
  const int output = P::kIsTurned ? place : line, depth = P::kIsTurned ? line : place;
  const int in_group = depth % problem.kGroup;
  const int channel = P::kArePatches ? depth / problem.kTaps : in_group % problem.kGroupChannels;
  const int tap = P::kArePatches ? depth % problem.kTaps
                                 : depth / problem.kGroup * problem.kGroupTaps +
                                       in_group / problem.kGroupChannels;
  const bool is_filled = !P::kArePatches && in_group >= problem.kGroupTaps * problem.kGroupChannels;
  const bool is_weight =
      !is_filled && output < problem.kOutputs && channel < problem.kChannels && tap < problem.kTaps;
  packed[number] =
      is_weight ? weights[i64(output) * problem.kOutputStep + i64(channel) * problem.kChannelStep +
                          i64(tap / problem.kTapColumns) * problem.kTapRowStep +
                          i64(tap % problem.kTapColumns) * problem.kTapColumnStep]
                : typename P::Element{};
}

/// Tiles of 128 pixels by P::kTileOutputs, 64 or 128, outputs; a thread has eight of them of four
/// or eight pixels. P is ConvMma's problem with steps of any size, kChannelStep between channels,
/// and the types Image and Weight; weights are packed as [depth, output], rows of kWeightRow
/// outputs, a multiple of the tile's, zero beyond the last.
template <class P, class E>
struct ConvPlain {
  static constexpr int kPixels = 128, kOutputs = P::kTileOutputs, kBlock = 8, kThreads = 256;
  static constexpr int kMine = kPixels * kOutputs / kThreads / 8;  // pixels of a thread
  // Copies of a thread: four of the depth of one pixel, and outputs some of the depth apart.
  static constexpr int kOutputCopies = kBlock * kOutputs / kThreads;
  static constexpr int kDepthsAtOnce = kThreads / kOutputs;

  struct alignas(16) Tiles {
    float pixels[kBlock][kPixels + 4];
    float outputs[kBlock][kOutputs];
  };

  const P& problem;
  const typename P::Image* image;
  const typename P::Weight* weights;
  int pixel, first_output;
  int y, x;  // of the window's corner
  i64 of_image;
  float next_pixels[4], next_outputs[kOutputCopies];

  static int from_pixel() { return threadIdx.x % kPixels; }
  static int from_depth() { return threadIdx.x / kPixels * 4; }

  void start(int first_pixel) {
    pixel = first_pixel + from_pixel();
    const int in_image = pixel % problem.kOutArea;
    y = pixel < problem.kPixels ? in_image / problem.kOutWidth * problem.kStrideY - problem.kPadY
                                : -(1 << 30);
    x = in_image % problem.kOutWidth * problem.kStrideX - problem.kPadX;
    of_image = i64(pixel / problem.kOutArea) * problem.kImageStep;
  }

  void fetch(int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int depth = step * kBlock + from_depth() + i;
      const int tap = depth / problem.kChannels, channel = depth % problem.kChannels;
      const int at_y = y + tap / problem.kTapColumns * problem.kDilationY;
      const int at_x = x + tap % problem.kTapColumns * problem.kDilationX;
      const bool is_inside = depth < problem.kDepth && static_cast<u32>(at_y) < problem.kHeight &&
                             static_cast<u32>(at_x) < problem.kWidth;
      next_pixels[i] =
          is_inside
              ? value_of(
                    image[of_image + i64(at_y) * problem.kRowStep +
                          i64(at_x) * problem.kColumnStep + i64(channel) * problem.kChannelStep])
              : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kOutputCopies; ++i) {
      const int depth = step * kBlock + threadIdx.x / kOutputs + i * kDepthsAtOnce;
      const int output = first_output + threadIdx.x % kOutputs;
      next_outputs[i] = depth < problem.kDepth
                            ? value_of(weights[i64(depth) * problem.kWeightRow + output])
                            : 0.f;
    }
  }
  void put(Tiles& to) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to.pixels[from_depth() + i][from_pixel()] = next_pixels[i];
#pragma unroll
    for (int i = 0; i < kOutputCopies; ++i)
      to.outputs[threadIdx.x / kOutputs + i * kDepthsAtOnce][threadIdx.x % kOutputs] =
          next_outputs[i];
  }

  template <int kCount>
  static void read(float (&to)[kCount], const float* from) {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const auto pack = *reinterpret_cast<const Pack<float, 4>*>(from + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) to[i + k] = pack.items[k];
    }
  }
  static void multiply(float (&sums)[kMine][8], const Tiles& tiles, int my_pixel, int my_output) {
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
      float a[kMine], b[8];
      read(a, &tiles.pixels[k][my_pixel]);
      read(b, &tiles.outputs[k][my_output]);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
  }

  static void run(const P& problem, const typename P::Image* image,
                  const typename P::Weight* weights, const E& epilogue, int part) {
    __shared__ Tiles tiles[2];
    const int block = static_cast<int>(blockIdx.x);
    const int first_pixel = block / problem.kOutputBlocks * kPixels;
    ConvPlain conv{problem, image, weights};
    conv.first_output = block % problem.kOutputBlocks * kOutputs;
    conv.start(first_pixel);
    launch_next();
    wait_for_previous();
    constexpr int kGroups = kOutputs / 8;
    const int my_pixel = threadIdx.x / kGroups * kMine, my_output = threadIdx.x % kGroups * 8;
    float sums[kMine][8] = {};
    const int begin = problem.kSteps * part / P::kParts;
    const int end = problem.kSteps * (part + 1) / P::kParts;
    conv.fetch(begin);
    conv.put(tiles[0]);
    __syncthreads();
    for (int step = begin, at = 0; step < end; ++step, at ^= 1) {
      if (step + 1 < end) conv.fetch(step + 1);
      multiply(sums, tiles[at], my_pixel, my_output);
      if (step + 1 < end) conv.put(tiles[at ^ 1]);
      __syncthreads();
    }
    const int channel = conv.first_output + my_output;
    if (channel >= problem.kOutputs) return;
    const auto line = epilogue.template line<8>(channel);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const int at = first_pixel + my_pixel + i;
      if (at < problem.kPixels)
        epilogue.template finish<8>(sums[i], line, epilogue.template pixel<8>(at, channel), at,
                                    channel);
    }
  }
};

/// One output channel of one pixel for each of kThreads threads. P has also kGroupChannels and
/// kGroupOutputs of a group, the type Sum, and of the weights [kGroups * outputs, channels] the
/// steps kOutputStep, kInputStep, kTapRowStep, kTapColumnStep.
template <class P, class E>
inline void convolve_directly(const P& problem, const typename P::Image* image,
                              const typename P::Weight* weights, const E& epilogue) {
  launch_next();
  wait_for_previous();
  const auto number = thread_number<P::kIsFar>();
  if (number >= problem.kThreads) return;
  const int output = static_cast<int>(number % problem.kOutputs);
  const int pixel = static_cast<int>(number / problem.kOutputs);
  const int in_image = pixel % problem.kOutArea;
  const int out_y = in_image / problem.kOutWidth, out_x = in_image % problem.kOutWidth;
  const int group = output / problem.kGroupOutputs, first_channel = group * problem.kGroupChannels;
  image += i64(pixel / problem.kOutArea) * problem.kImageStep +
           i64(first_channel) * problem.kChannelStep;
  weights += i64(output) * problem.kOutputStep;
  using Sum = typename P::Sum;
  Sum sum[1] = {};
  for (int tap = 0; tap < problem.kTaps; ++tap) {
    const int down = tap / problem.kTapColumns, right = tap % problem.kTapColumns;
    const int y = out_y * problem.kStrideY - problem.kPadY + down * problem.kDilationY;
    const int x = out_x * problem.kStrideX - problem.kPadX + right * problem.kDilationX;
    if (static_cast<u32>(y) >= problem.kHeight || static_cast<u32>(x) >= problem.kWidth) continue;
    const auto* from = image + i64(y) * problem.kRowStep + i64(x) * problem.kColumnStep;
    const auto* with =
        weights + i64(down) * problem.kTapRowStep + i64(right) * problem.kTapColumnStep;
    for (int channel = 0; channel < problem.kGroupChannels; ++channel)
      sum[0] += Sum(value_of(from[i64(channel) * problem.kChannelStep])) *
                Sum(value_of(with[i64(channel) * problem.kInputStep]));
  }
  epilogue.template finish<1>(sum, epilogue.template line<1>(output),
                              epilogue.template pixel<1>(pixel, output), pixel, output);
}

}  // namespace tensor::device

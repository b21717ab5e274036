// Convolution on the cores for plain arithmetic: a tiled product over gathered pixels for float32
// and for what Tensor Cores cannot take, a loop for what has groups, and the copy
// that brings an image into the form that Tensor Cores want. Any element types and strides.
#pragma once

#include "conv_tile.h"
#include "plain_warp.h"

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
  using Value = Compute<typename P::To>;
  Value values[kGroup] = {};
  if (static_cast<u32>(y) < problem.kHeight && static_cast<u32>(x) < problem.kWidth) {
    const auto* from = image + i64(n) * problem.kImageStep + i64(y) * problem.kRowStep +
                       i64(x) * problem.kColumnStep + i64(group) * kGroup * problem.kChannelStep;
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (group * kGroup + i < problem.kFrom)
        values[i] = static_cast<Value>(value_of(from[i64(i) * problem.kChannelStep]));
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

/// Tiles of 128 pixels by P::kTileOutputs, 64 or 128, outputs; a lane has eight of both. P is
/// ConvMma's problem with steps of any size, kChannelStep between channels, and the types Image and
/// Weight; kHasFours where four of the depth lie together in floats, at multiples of 16 bytes;
/// weights are packed as [depth, output], rows of kWeightRow outputs, a multiple of the tile's,
/// zero beyond the last, and kIsAsync where cp.async brings them.
template <class P, class E>
struct ConvPlain {
  static constexpr int kPixels = 128, kOutputs = P::kTileOutputs, kBlock = 16;
  static constexpr int kThreads = 2 * kOutputs, kAcross = kOutputs / 64;  // warps
  static constexpr int kMine = kPixels * kBlock / kThreads;  // of the depth of one pixel
  static constexpr int kOutputCopies = kBlock * kOutputs / 4 / kThreads;  // fours of a thread
  static constexpr int kPad = 4;
  using Warp = PlainWarp<float, 8, 8, kPixels + kPad, kOutputs + kPad>;
  using Four = Pack<typename P::Weight, 4>;

  struct alignas(16) Tiles {
    float pixels[kBlock][kPixels + kPad];
    float outputs[kBlock][kOutputs + kPad];
  };

  const P& problem;
  const typename P::Image* image;
  const typename P::Weight* weights;
  int pixel, first_output;
  int y, x;  // of the window's corner
  i64 of_image;
  float next_pixels[kMine];
  Four next_outputs[kOutputCopies];

  static int from_pixel() { return threadIdx.x % kPixels; }
  static int from_depth() { return threadIdx.x / kPixels * kMine; }

  void start(int first_pixel) {
    pixel = first_pixel + from_pixel();
    const int in_image = pixel % problem.kOutArea;
    y = pixel < problem.kPixels ? in_image / problem.kOutWidth * problem.kStrideY - problem.kPadY
                                : -(1 << 30);
    x = in_image % problem.kOutWidth * problem.kStrideX - problem.kPadX;
    of_image = i64(pixel / problem.kOutArea) * problem.kImageStep;
  }

  // Neighbours of the depth in one tap.
  template <int kCount>
  void fetch_pixel(float* to, int depth) const {
    const int tap = depth / problem.kChannels, channel = depth % problem.kChannels;
    const int at_y = y + tap / problem.kTapColumns * problem.kDilationY;
    const int at_x = x + tap % problem.kTapColumns * problem.kDilationX;
    const bool is_inside = depth < problem.kDepth && static_cast<u32>(at_y) < problem.kHeight &&
                           static_cast<u32>(at_x) < problem.kWidth;
    Pack<typename P::Image, kCount> pack = {};
    if (is_inside)
      pack = *reinterpret_cast<const Pack<typename P::Image, kCount>*>(
          image + of_image + i64(at_y) * problem.kRowStep + i64(at_x) * problem.kColumnStep +
          i64(channel) * problem.kChannelStep);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = value_of(pack.items[i]);
  }
  void fetch(int step) {
    constexpr int kCount = P::kHasFours ? 4 : 1;
#pragma unroll
    for (int i = 0; i < kMine; i += kCount)
      fetch_pixel<kCount>(next_pixels + i, step * kBlock + from_depth() + i);
  }
  void put(Tiles& to) const {
#pragma unroll
    for (int i = 0; i < kMine; ++i) to.pixels[from_depth() + i][from_pixel()] = next_pixels[i];
  }

  // Calls each(i, depth in the tile, output in the tile, source or null) for fours of weights.
  template <class Each>
  void each_output(int step, Each&& each) const {
#pragma unroll
    for (int i = 0; i < kOutputCopies; ++i) {
      const int four = threadIdx.x + i * kThreads;
      const int line = four / (kOutputs / 4), output = four % (kOutputs / 4) * 4;
      const int depth = step * kBlock + line;
      each(i, line, output,
           depth < problem.kDepth
               ? weights + i64(depth) * problem.kWeightRow + first_output + output
               : nullptr);
    }
  }
  void fetch_outputs(int step, Tiles& to) {
    each_output(step, [&](int i, int line, int output, const auto* from) {
      if constexpr (P::kIsAsync)
        copy_16(shared_address(&to.outputs[line][output]), from ? from : weights, from ? 16 : 0);
      else
        next_outputs[i] = from ? *reinterpret_cast<const Four*>(from) : Four{};
    });
    if constexpr (P::kIsAsync) copy_commit();
  }
  void put_outputs(Tiles& to) const {
    if constexpr (!P::kIsAsync)
      each_output(0, [&](int i, int line, int output, const auto*) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          to.outputs[line][output + j] = value_of(next_outputs[i].items[j]);
      });
  }

  // Four channels of a pixel at a time; those of four pixels are read before any is written.
  static void finish(const P& problem, const Warp& warp, const E& epilogue, int first_pixel,
                     int first_output) {
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      const int channel = first_output + Warp::column(j);
      if (channel >= problem.kOutputs) continue;
      const auto line = epilogue.template line<4>(channel);
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const int at = first_pixel + Warp::row(i);
        decltype(epilogue.template pixel<4>(0, 0)) read[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (at + k < problem.kPixels) read[k] = epilogue.template pixel<4>(at + k, channel);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          if (at + k >= problem.kPixels) continue;
          const float sums[4] = {warp.sums[i + k][j], warp.sums[i + k][j + 1],
                                 warp.sums[i + k][j + 2], warp.sums[i + k][j + 3]};
          epilogue.template finish<4>(sums, line, read[k], at + k, channel);
        }
      }
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
    const int number = threadIdx.x / 32;
    const int row = number / kAcross * Warp::kRows, column = number % kAcross * Warp::kColumns;
    Warp warp;
    const int begin = problem.kSteps * part / P::kParts;
    const int end = problem.kSteps * (part + 1) / P::kParts;
    conv.fetch(begin);
    conv.fetch_outputs(begin, tiles[0]);
    conv.put(tiles[0]);
    conv.put_outputs(tiles[0]);
    for (int step = begin, at = 0; step < end; ++step, at ^= 1) {
      if constexpr (P::kIsAsync) copy_wait<0>();
      __syncthreads();  // this stage is there, and all have left the other
      if (step + 1 < end) {
        conv.fetch(step + 1);
        conv.fetch_outputs(step + 1, tiles[at ^ 1]);
      }
      warp.template multiply<kBlock>(&tiles[at].pixels[0][row], &tiles[at].outputs[0][column]);
      if (step + 1 < end) {
        conv.put(tiles[at ^ 1]);
        conv.put_outputs(tiles[at ^ 1]);
      }
    }
    finish(problem, warp, epilogue, first_pixel + row, conv.first_output + column);
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

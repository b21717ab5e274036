// What the kernels of convolutions share: neighbouring channels in memory, and how sums that lie in
// mma's registers reach the epilogue as rows of eight channels.
#pragma once

#include "fragments.h"
#include "numbers.h"

namespace tensor::device {

/// kCount channels of one pixel, as they lie in memory. kIsPacked: next to each other, none
/// missing, at a multiple of 16 bytes or of their size.
template <class T, int kCount, bool kIsPacked>
struct alignas(T) alignas(4) Channels {
  static constexpr int kWhole = 16 / sizeof(T);
  static constexpr int kPack = kCount < kWhole ? kCount : kWhole;
  T items[kCount];

  /// `left`: how many there are, `stride` apart; what is beyond is a copy of the first.
  void load(const T* from, int stride, int left) {
    if constexpr (kIsPacked) {
#pragma unroll
      for (int at = 0; at < kCount; at += kPack) {
        const auto pack = *reinterpret_cast<const Pack<T, kPack>*>(from + at);
#pragma unroll
        for (int i = 0; i < kPack; ++i) items[at + i] = pack.items[i];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) items[i] = from[i < left ? i * stride : 0];
    }
  }
  Compute<T> operator[](int i) const { return value_of(items[i]); }
};

template <bool kIsPacked, int kCount, class T>
inline void store_channels(T* to, const Compute<T> (&from)[kCount], int stride, int left) {
  if constexpr (kIsPacked) {
    constexpr int kPack = Channels<T, kCount, true>::kPack;
#pragma unroll
    for (int at = 0; at < kCount; at += kPack) {
      Compute<T> part[kPack];
#pragma unroll
      for (int i = 0; i < kPack; ++i) part[i] = from[at + i];
      store_pack<kPack>(to + at, part);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i < left) to[i * stride] = stored<T>(from[i]);
  }
}

/// Where the channels that an output reads begin.
template <class P>
inline int first_channel(const P& problem, int output) {
  if constexpr (P::kHasGroups)
    return output / problem.kGroupOutputs * problem.kGroupChannels;
  else
    return 0;
}

/// Floats of shared memory that finish_rows needs for a warp.
template <int kColumns>
inline constexpr int kRowsBuffer = 16 * (kColumns + 8);

/// 16 pixels by kColumns channels of a warp's sums, laid out as kWarpSums for each eight columns,
/// through `buffer` to the epilogue: a lane has eight channels of a pixel there, so that whole rows
/// are read and written. E has what a line of channels needs of all pixels (line), what each pixel
/// needs (pixel), and finish, which stores.
template <int kColumns, class E>
inline void finish_rows(const float (&sums)[kColumns / 8][4], float* buffer, int first_pixel,
                        int first_channel, int pixels, int channels, const E& epilogue) {
  constexpr int kPitch = kColumns + 8;  // no two rows of a store meet in a bank
  constexpr int kLanes = kColumns / 8, kRows = 32 / kLanes, kPasses = 16 / kRows;
  const int lane = threadIdx.x % 32;
  const Place mine = kWarpSums.of_lane(lane);
  __syncwarp();  // other lanes may still read what came before
#pragma unroll
  for (int tile = 0; tile < kColumns / 8; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Place p = kWarpSums.of_element(i);
      buffer[(mine.row + p.row) * kPitch + mine.column + p.column + 8 * tile] = sums[tile][i];
    }
  __syncwarp();
  const int row = lane / kLanes, column = lane % kLanes * 8, channel = first_channel + column;
  if (channel >= channels) return;
  const auto line = epilogue.template line<8>(channel);
  decltype(epilogue.template pixel<8>(0, 0)) read[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int pixel = first_pixel + row + i * kRows;
    if (pixel < pixels) read[i] = epilogue.template pixel<8>(pixel, channel);
  }
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int at = row + i * kRows, pixel = first_pixel + at;
    if (pixel >= pixels) continue;
    keep_packed(read[i]);
    float part[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) part[k] = buffer[at * kPitch + column + k];
    epilogue.template finish<8>(part, line, read[i], pixel, channel);
  }
}

/// An epilogue that keeps sums of a part of the depth: [part, pixel, channel] floats. P names the
/// problem: kPixels, kOutputs, and kWholeOutputs where these are a multiple of 8.
template <class P>
struct PartialSums {
  const P& problem;
  float* sums;
  int part;

  struct Nothing {};
  template <int kCount>
  Nothing line(int) const {
    return {};
  }
  template <int kCount>
  Nothing pixel(int, int) const {
    return {};
  }
  template <int kCount>
  void finish(const float (&values)[kCount], Nothing, Nothing, int pixel, int channel) const {
    float* to = sums + (i64(part) * problem.kPixels + pixel) * problem.kOutputs + channel;
    store_channels<P::kWholeOutputs>(to, values, 1, problem.kOutputs - channel);
  }
};

/// The thread's number in the grid; kIsFar: there are more of them than an int counts.
template <bool kIsFar>
inline auto thread_number() {
  if constexpr (kIsFar)
    return i64(blockIdx.x) * blockDim.x + threadIdx.x;
  else
    return static_cast<u32>(blockIdx.x * blockDim.x + threadIdx.x);
}

/// The sum of the parts, and then the epilogue: a thread has eight channels of a pixel. P is that
/// of PartialSums, with kGroups of eight outputs, kThreads in all, and kIsFar.
template <int kParts, class P, class E>
inline void finish_partial_sums(const P& problem, const float* sums, const E& epilogue) {
  const auto number = thread_number<P::kIsFar>();
  launch_next();
  wait_for_previous();
  if (number >= problem.kThreads) return;
  const int pixel = static_cast<int>(number / problem.kGroups);
  const int channel = static_cast<int>(number % problem.kGroups) * 8;
  const auto line = epilogue.template line<8>(channel);
  const auto read = epilogue.template pixel<8>(pixel, channel);
  Channels<float, 8, P::kWholeOutputs> parts[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part)
    parts[part].load(sums + (i64(part) * problem.kPixels + pixel) * problem.kOutputs + channel, 1,
                     problem.kOutputs - channel);
  float total[8] = {};
#pragma unroll
  for (int part = 0; part < kParts; ++part)
#pragma unroll
    for (int i = 0; i < 8; ++i) total[i] += parts[part][i];
  epilogue.template finish<8>(total, line, read, pixel, channel);
}

}  // namespace tensor::device

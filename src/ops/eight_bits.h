// How numbers become eight bits, for the operator quantized_matmul and all kernels of it: a row (or
// the weights of a column) has one scale, by which its largest magnitude becomes 127.
//
// With largest = max |x|, but at least 2^-100 so that all that follows is finite, a number becomes
// x * (127 / largest) rounded to the nearest integer, a tie to the even one, and scale = largest /
// 127. Each operation is rounded to float32; no integer exceeds 127 (127 (1 + 2^-24)^2 < 127.5).
// A row that holds an infinity or a NaN becomes zeros with the scale NaN, so its results are NaN.
// Rows of i8 are taken as they are, with the scales that come with them, or 1; so are images of i8.
//
// Weights lie as processors multiply them, so that files of plans are used in place: strips of 16
// columns, a strip being words [depth / 4, 16] of four neighbours of the depth of one column. What
// lies beyond the depth or the columns may be anything.
#pragma once

#include <cstdint>

namespace tensor {

inline constexpr float kMostByte = 127;
inline constexpr float kLeastMagnitude = 0x1p-100f;
/// Sums of more products, each of at most 128 * 128, could leave 32 bits.
inline constexpr std::int64_t kMostByteDepth = 0x7fffffff / (128 * 128);
inline constexpr std::int64_t kByteColumns = 16, kByteWord = 4;

/// The attribute of a product whose rows of i8 do not hold -128, which some instructions need.
inline constexpr const char* kSymmetric = "symmetric";

/// Where a weight lies among the bytes of its strip.
constexpr std::int64_t byte_place(std::int64_t depth, std::int64_t column) {
  return (depth / kByteWord * kByteColumns + column % kByteColumns) * kByteWord + depth % kByteWord;
}

/// Returns the scale.
float quantize(const float* from, std::int64_t count, std::int8_t* to);

}  // namespace tensor

// The weights of a product in eight bits as its kernel takes them: strips of 16 columns of words, a
// word being four neighbours of the depth of one column.
#pragma once

#include "src/kernels/host/simd/table.h"
#include "tensor/handle.h"

namespace tensor::cpu {

inline constexpr std::int64_t kByteColumns = 16, kByteWord = 4;  // of a strip; of a word

/// What multiplies, in words of four bytes.
struct ByteUnit {
  const char* name;
  simd::Table::MultiplyBytes multiply;
  std::int64_t step;       // of the depth, in bytes, whole ones of which it takes
  std::int64_t most_rows;  // at a time
};

/// The best that this machine has: tiles, dot products, or what it has of vectors.
ByteUnit byte_unit();

/// i8 [depth, columns] of any strides as [strips, depth in whole steps, 16], with zeros around.
Tensor byte_strips(const Tensor& weights, std::int64_t step, int threads);

}  // namespace tensor::cpu

#include "src/kernels/cpu/eight_bits/weights.h"

#include <algorithm>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "tensor/creation.h"

namespace tensor::cpu {
ByteUnit byte_unit() {
  constexpr std::int64_t kRows = 252;
  const simd::Table& table = simd::table();
  if (simd::has_byte_tiles()) return {"tiles", table.multiply_byte_tiles, 64, 32};
  if (simd::has_byte_dots()) return {"dot products", table.multiply_byte_dots, kByteWord, kRows};
  return {"vectors", table.multiply_bytes, kByteWord, kRows};
}

Tensor byte_strips(const Tensor& weights, std::int64_t step, int threads) {
  const std::int64_t depth = weights.shape(0), columns = weights.shape(1);
  const std::int64_t strips = ceil_div(columns, kByteColumns), pitch = round_up(depth, step);
  const Tensor result = zeros({strips, pitch, kByteColumns}, i8);
  const detail::TensorImpl& from = detail::stored(weights);
  const auto* first = reinterpret_cast<const std::int8_t*>(from.first());
  auto* const all = reinterpret_cast<std::int8_t*>(detail::stored(result).first());
  parallel_for(threads, strips, [&](std::int64_t strip, int) {
    std::int8_t* to = all + strip * pitch * kByteColumns;
    const std::int64_t count = std::min(kByteColumns, columns - strip * kByteColumns);
    for (std::int64_t column = 0; column < count; ++column) {
      const std::int8_t* line = first + (strip * kByteColumns + column) * from.strides[1];
      for (std::int64_t k = 0; k < depth; ++k)
        to[k / kByteWord * kByteWord * kByteColumns + column * kByteWord + k % kByteWord] =
            line[k * from.strides[0]];
    }
  });
  return result;
}

}  // namespace tensor::cpu

#include "src/trace/passes/byte_weights.h"

#include <algorithm>
#include <cmath>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tensor/threads.h"

namespace tensor {
namespace {

const float* elements(const Tensor& x) {
  return reinterpret_cast<const float*>(detail::stored(x).first());
}

// Calls use(column, numbers, bytes) with every column of the weights, whose rows are multiplied by
// `factors` (none: as they are), and room for as many bytes.
template <class Use>
void for_columns(const Tensor& weights, const Tensor& factors, const Use& use) {
  const std::int64_t depth = weights.shape(0), columns = weights.shape(1);
  const std::int64_t row = weights.strides()[0], column = weights.strides()[1];
  const float *from = elements(weights), *by = factors.defined() ? elements(factors) : nullptr;
  cpu::parallel_for(threads(), ceil_div(columns, kByteColumns), [&](std::int64_t strip, int) {
    std::vector<float> numbers(static_cast<std::size_t>(depth));
    std::vector<std::int8_t> bytes(numbers.size());
    const std::int64_t end = std::min(columns, (strip + 1) * kByteColumns);
    for (std::int64_t n = strip * kByteColumns; n < end; ++n) {
      for (std::int64_t k = 0; k < depth; ++k) {
        const float x = from[k * row + n * column];
        numbers[static_cast<std::size_t>(k)] = by ? x * by[k] : x;
      }
      use(n, numbers.data(), bytes.data());
    }
  });
}

}  // namespace

Tensor matrix_of(const Tensor& weights) {
  if (weights.rank() != 4) return weights;
  const std::int64_t columns = weights.shape(0);
  return transpose(weights, {2, 3, 1, 0}).reshape({-1, columns});
}

Tensor bytes_of(const Tensor& weights, const Tensor& factors, const Quantize& quantized) {
  const std::int64_t depth = weights.shape(0), columns = weights.shape(1);
  const Shape shape{ceil_div(columns, kByteColumns), ceil_div(depth, kByteWord), kByteColumns,
                    kByteWord};
  const Tensor result = zeros(shape, i8);
  const std::int64_t strip_bytes = shape[1] * kByteColumns * kByteWord;
  auto* to = reinterpret_cast<std::int8_t*>(detail::stored(result).first());
  for_columns(weights, factors, [&](std::int64_t n, const float* numbers, std::int8_t* bytes) {
    quantized(numbers, depth, bytes);
    std::int8_t* strip = to + n / kByteColumns * strip_bytes;
    for (std::int64_t k = 0; k < depth; ++k) strip[byte_place(k, n)] = bytes[k];
  });
  forget_pages(weights);
  return result;
}

Tensor scales_of(const Tensor& weights, const Tensor& factors, const Quantize& quantized) {
  const Tensor result = empty({weights.shape(1)}, f32);
  auto* to = reinterpret_cast<float*>(detail::stored(result).first());
  for_columns(weights, factors, [&](std::int64_t n, const float* numbers, std::int8_t* bytes) {
    to[n] = quantized(numbers, weights.shape(0), bytes);
  });
  forget_pages(weights);
  return result;
}

std::vector<float> largest_of_rows(const Tensor& weights) {
  std::int64_t rows = weights.shape(0), columns = weights.shape(1);
  const std::int64_t row = weights.strides()[0], column = weights.strides()[1];
  std::vector<float> most(static_cast<std::size_t>(rows));
  const auto see = [&](std::int64_t k, std::int64_t n) {
    float& known = most[static_cast<std::size_t>(k)];
    const float x = std::abs(elements(weights)[k * row + n * column]);
    known = x > known || x != x ? x : known;
  };
  if (row < column)  // as they lie in memory
    for (std::int64_t n = 0; n < columns; ++n)
      for (std::int64_t k = 0; k < rows; ++k) see(k, n);
  else
    for (std::int64_t k = 0; k < rows; ++k)
      for (std::int64_t n = 0; n < columns; ++n) see(k, n);
  forget_pages(weights);
  return most;
}

Tensor sums_of_columns(const Tensor& strips, std::int64_t columns) {
  const Tensor sums = sum(strips.astype(f32), Axes({1, 3}));
  return reshape(sums, {-1})(slice(0, columns));
}

}  // namespace tensor

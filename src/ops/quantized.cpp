// The product of rows in eight bits by weights in eight bits, which only compile() makes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/core/rounding.h"
#include "src/ops/eight_bits.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"

namespace tensor {
namespace {

// Of rows x [..., k], weights i8 [strips, words, 16, 4] and the scales of their n columns f32 [n].
TensorType infer_quantized_matmul(std::span<const TensorType> in, const Attrs&) {
  const TensorType &x = in[0], &weights = in[1], &scales = in[2];
  const bool is_taken = x.dtype == i8 || (is_floating(x.dtype) && x.dtype != f64);
  if (!is_taken || x.shape.rank() < 2)
    fail("quantized_matmul", "got the rows ", x, ", need f32, bf16, f16 or i8 and at least 2 axes");
  if (scales.dtype != f32 || scales.shape.rank() != 1)
    fail("quantized_matmul", "got the scales ", scales, ", need f32(columns)");
  const std::int64_t depth = x.shape.back(), columns = scales.shape[0];
  if (depth > kMostByteDepth)
    fail("quantized_matmul", "got rows of ", depth, " numbers, need at most ", kMostByteDepth,
         ", whose products add up in 32 bits");
  const TensorType wanted = {
      {ceil_div(columns, kByteColumns), ceil_div(depth, kByteWord), kByteColumns, kByteWord}, i8};
  if (weights != wanted)
    fail("quantized_matmul", "got the weights ", weights, " for the rows ", x, " and ", columns,
         " columns, need ", wanted);
  Shape shape = x.shape;
  shape[shape.rank() - 1] = columns;
  return {shape, f32};
}

// Exact sums of integers, then float(sum) * (scale of the row * scale of the column).
void eval_quantized_matmul(std::span<const ConstView> in, const Attrs&, const View& out) {
  const Tensor x = packed(in[0], f32), weights = packed(in[1], i8), scales = packed(in[2], f32);
  const std::int64_t depth = x.shape().back(), columns = out.shape.back(),
                     rows = num_elements(out.shape) / std::max<std::int64_t>(columns, 1),
                     words = weights.shape(1);
  Tensor result = empty(out.shape, f32);
  auto* to = mutable_view(result).as<float>();
  std::vector<std::int8_t> row(static_cast<std::size_t>(words * kByteWord));
  for (std::int64_t m = 0; m < rows; ++m) {
    const float* numbers = x.data<float>() + m * depth;
    const float scale = in[0].dtype == i8 ? 1 : quantize(numbers, depth, row.data());
    if (in[0].dtype == i8) std::copy(numbers, numbers + depth, row.begin());
    const std::int8_t* strip = weights.data<std::int8_t>();
    for (std::int64_t first = 0; first < columns;
         first += kByteColumns, strip += words * kByteColumns * kByteWord) {
      std::int32_t sums[kByteColumns] = {};
      for (std::int64_t k = 0; k < words * kByteWord; ++k)
        for (std::int64_t n = 0; n < kByteColumns; ++n)
          sums[n] += row[static_cast<std::size_t>(k)] * strip[byte_place(k, n)];
      for (std::int64_t n = 0; n < std::min(kByteColumns, columns - first); ++n)
        *to++ = static_cast<float>(sums[n]) * (scale * scales.data<float>()[first + n]);
    }
  }
  convert_elements(const_view(result), out);
}

constexpr OpInfo kQuantizedRows[] = {
    {Op::quantized_matmul, "quantized_matmul", 3, 3, Pattern::complex_out_fusable,
     infer_quantized_matmul, eval_quantized_matmul},
};

}  // namespace

float quantize(const float* from, std::int64_t count, std::int8_t* to) {
  float largest = kLeastMagnitude;
  bool is_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    is_finite = is_finite && std::isfinite(from[i]);
    largest = std::max(largest, std::abs(from[i]));
  }
  const float inverse = kMostByte / largest;
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = is_finite ? static_cast<std::int8_t>(std::nearbyint(from[i] * inverse)) : 0;
  return is_finite ? largest / kMostByte : std::numeric_limits<float>::quiet_NaN();
}

std::span<const OpInfo> quantized_ops() { return kQuantizedRows; }

}  // namespace tensor

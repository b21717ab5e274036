// Products of rows in eight bits by weights in eight bits, which only compile() makes. The rows of
// a convolution are what its filters lie on.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/core/rounding.h"
#include "src/ops/eight_bits.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/pair.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

// Throws UserError unless the weights i8 [strips, words, 16, 4] have `depth` rows and as many
// columns as the scales f32 [columns].
void check_weights(std::span<const TensorType> in, std::int64_t depth, std::string_view where) {
  const TensorType &weights = in[1], &scales = in[2];
  if (scales.dtype != f32 || scales.shape.rank() != 1)
    fail(where, "got the scales ", scales, ", need f32(columns)");
  if (depth > kMostByteDepth)
    fail(where, "got rows of ", depth, " numbers, need at most ", kMostByteDepth,
         ", whose products add up in 32 bits");
  const std::int64_t columns = scales.shape[0],
                     strips = columns / kByteColumns + (columns % kByteColumns != 0);
  const TensorType wanted = {{strips, ceil_div(depth, kByteWord), kByteColumns, kByteWord}, i8};
  if (weights != wanted)
    fail(where, "got the weights ", weights, " for the ",
         where == "quantized_matmul" ? "rows " : "images ", in[0], " and ", columns,
         " columns, need ", wanted);
}

bool can_be_rows(DType dtype) { return dtype == i8 || (is_floating(dtype) && dtype != f64); }

// Of rows x [..., k]; those of i8 may have scales [..., 1].
TensorType infer_quantized_matmul(std::span<const TensorType> in, const Attrs&) {
  const TensorType& x = in[0];
  if (!can_be_rows(x.dtype) || x.shape.rank() < 2)
    fail("quantized_matmul", "got the rows ", x, ", need f32, bf16, f16 or i8 and at least 2 axes");
  check_weights(in, x.shape.back(), "quantized_matmul");
  Shape shape = x.shape;
  shape[shape.rank() - 1] = 1;
  if (in.size() > 3 && (x.dtype != i8 || in[3] != TensorType{shape, f32}))
    fail("quantized_matmul", "got the scales ", in[3], " of the rows ", x, ", need rows of i8 and ",
         TensorType{shape, f32}, ", or no scales of rows");
  shape[shape.rank() - 1] = in[2].shape[0];
  return {shape, f32};
}

// Of images x [N, C, H, W], as conv2d without groups of filters [columns, C, `kernel`].
TensorType infer_quantized_conv2d(std::span<const TensorType> in, const Attrs& attrs) {
  constexpr std::string_view kWhere = "quantized_conv2d";
  const TensorType& x = in[0];
  if (!can_be_rows(x.dtype)) fail(kWhere, "got the images ", x, ", need f32, bf16, f16 or i8");
  check_images(x.shape, kWhere);
  const Pair kernel = pair_of(attrs, "kernel", 1, kWhere);
  std::int64_t depth = kernel.h * kernel.w;
  if (__builtin_mul_overflow(depth, x.shape[1], &depth)) depth = kMostByteDepth + 1;
  check_weights(in, depth, kWhere);
  const TensorType types[] = {{x.shape, f32},
                              {{in[2].shape[0], x.shape[1], kernel.h, kernel.w}, f32}};
  Attrs window = {{"groups", std::int64_t{1}}};
  for (const auto& [name, least] : {std::pair{"stride", 1}, {"padding", 0}, {"dilation", 1}})
    window.set(name, pair_value(pair_of(attrs, name, least, kWhere)));
  return infer(Op::conv2d, types, window);
}

// Calls row_of(m, numbers) for the numbers of every row, which are bytes where they have scales.
// Exact sums of integers, then float(sum) * (scale of the row * scale of the column); the rows of
// the result lie one behind the other.
template <class RowOf>
void multiply(const ConstView& bytes, const ConstView& by, std::int64_t rows, std::int64_t depth,
              const float* scales_of_rows, float* to, const RowOf& row_of) {
  const Tensor weights = packed(bytes, i8), scales = packed(by, f32);
  const std::int64_t columns = scales.size(), words = weights.shape(1);
  std::vector<float> numbers(static_cast<std::size_t>(depth));
  std::vector<std::int8_t> row(static_cast<std::size_t>(words * kByteWord));
  for (std::int64_t m = 0; m < rows; ++m) {
    row_of(m, numbers.data());
    const float scale =
        scales_of_rows ? scales_of_rows[m] : quantize(numbers.data(), depth, row.data());
    if (scales_of_rows) std::copy(numbers.begin(), numbers.end(), row.begin());
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
}

void eval_quantized_matmul(std::span<const ConstView> in, const Attrs&, const View& out) {
  const Tensor x = packed(in[0], f32), result = empty(out.shape, f32);
  const std::int64_t depth = x.shape().back(),
                     rows = num_elements(out.shape) / std::max<std::int64_t>(out.shape.back(), 1);
  Tensor by;
  if (in.size() > 3)
    by = packed(in[3], f32);
  else if (in[0].dtype == i8)
    by = ones({rows}, f32);
  multiply(in[1], in[2], rows, depth, by.defined() ? by.data<float>() : nullptr,
           mutable_view(result).as<float>(), [&](std::int64_t m, float* numbers) {
             std::copy_n(x.data<float>() + m * depth, depth, numbers);
           });
  convert_elements(const_view(result), out);
}

// A row has the channels of one pixel after those of the other; beyond the image are zeros.
void eval_quantized_conv2d(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const Tensor x = transpose(packed(in[0], f32), {0, 2, 3, 1}).copy();
  const std::int64_t height = x.shape(1), width = x.shape(2), channels = x.shape(3);
  const auto pair = [&](std::string_view name) { return pair_of(attrs, name, 0, "conv"); };
  const Pair kernel = pair("kernel"), stride = pair("stride"), padding = pair("padding"),
             dilation = pair("dilation"), grid{out.shape[2], out.shape[3]};
  const Tensor result = empty({out.shape[0], grid.h, grid.w, out.shape[1]}, f32);
  const std::int64_t rows = out.shape[0] * grid.h * grid.w;
  const Tensor by = in[0].dtype == i8 ? ones({rows}, f32) : Tensor();
  multiply(
      in[1], in[2], rows, channels * kernel.h * kernel.w, by.defined() ? by.data<float>() : nullptr,
      mutable_view(result).as<float>(), [&](std::int64_t m, float* numbers) {
        const float* image = x.data<float>() + m / (grid.h * grid.w) * height * width * channels;
        const std::int64_t top = m / grid.w % grid.h * stride.h - padding.h,
                           left = m % grid.w * stride.w - padding.w;
        for (std::int64_t i = 0; i < kernel.h; ++i)
          for (std::int64_t j = 0; j < kernel.w; ++j, numbers += channels) {
            const std::int64_t y = top + i * dilation.h, at = left + j * dilation.w;
            if (y < 0 || y >= height || at < 0 || at >= width)
              std::fill_n(numbers, channels, 0.0f);
            else
              std::copy_n(image + (y * width + at) * channels, channels, numbers);
          }
      });
  convert_elements(const_view(transpose(result, {0, 3, 1, 2})), out);
}

constexpr OpInfo kQuantizedRows[] = {
    {Op::quantized_matmul, "quantized_matmul", 3, 4, Pattern::complex_out_fusable,
     infer_quantized_matmul, eval_quantized_matmul},
    {Op::quantized_conv2d, "quantized_conv2d", 3, 3, Pattern::complex_out_fusable,
     infer_quantized_conv2d, eval_quantized_conv2d},
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

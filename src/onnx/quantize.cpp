// Quantized operators, computed in floating numbers as ONNX's reference does.
#include <algorithm>

#include "src/onnx/elements.h"
#include "src/onnx/window.h"

namespace tensor::onnx {
namespace {

// A scale or zero point: of the whole tensor, or of every place along an axis of x.
Tensor along_axis(const Tensor& v, const Tensor& x, std::int64_t axis) {
  if (v.size() == 1) return v.reshape({});
  const int at = normalize_axis(axis, x.rank(), "axis");
  Shape shape = Shape::filled(x.rank(), 1);
  shape[at] = x.shape(at);
  if (v.size() != shape[at])
    fail("axis", "got ", v.size(), " scales for the shape ", x.shape(), " along axis ", at);
  return v.reshape(shape);
}

Tensor quantized(const Tensor& x, const Tensor& scale, const Tensor& zero, DType dtype) {
  const auto [low, high] = limits_of(dtype);
  const Tensor steps = round(x / scale.to(x.dtype()));
  return clip(zero.defined() ? steps + zero.to(x.dtype()) : steps, low, high).to(dtype);
}

Results quantize_linear(const Call& c) {
  const std::int64_t axis = c.integer("axis", 1);
  const std::int64_t type = c.integer("output_dtype", 0);
  const DType dtype = c.has(2) ? c[2].dtype() : type == 0 ? u8 : *dtype_of_onnx(type);
  const Tensor x = c[0].dtype() == i32 ? c[0].to(f32) : c[0];
  return {quantized(x, along_axis(c[1], x, axis), c.has(2) ? along_axis(c[2], x, axis) : Tensor(),
                    dtype)};
}
std::string refuse_quantize(const Node& n) {
  const Attribute* type = n.find("output_dtype");
  if (type && type->integer != 0) {
    const auto dtype = dtype_of_onnx(type->integer);
    if (!dtype || is_floating(*dtype)) return "output_dtype=" + type_name(type->integer);
  }
  return refuse_unless(n, "block_size", 0);
}

// The numbers that quantized ones stand for, but for their scale.
Tensor centred(const Tensor& x, const Tensor& zero, std::int64_t axis = 1) {
  if (!zero.defined()) return x.to(f32);
  return x.to(f32) - along_axis(zero, x, axis).to(f32);
}

Results dequantize_linear(const Call& c) {
  const std::int64_t axis = c.integer("axis", 1);
  const Tensor scale = along_axis(c[1], c[0], axis);
  return {(centred(c[0], c.optional(2), axis) * scale.to(f32)).to(scale.dtype())};
}

Results dynamic_quantize_linear(const Call& c) {
  const Tensor& x = c[0];
  const Tensor low = minimum(min(x), 0), high = maximum(max(x), 0);
  const Tensor scale = (high - low) / 255;
  const Tensor zero = clip(round(-low / scale), 0, 255);
  return {clip(round(x / scale) + zero, 0, 255).to(u8), scale, zero.to(u8)};
}

// Of the rows of a, and the columns of b.
Tensor row_point(const Tensor& zero) {
  return zero.defined() && zero.rank() == 1 && zero.size() > 1 ? zero.expand_dims(1) : zero;
}
Tensor integer_product(const Tensor& a, const Tensor& b, const Tensor& a_zero,
                       const Tensor& b_zero) {
  const auto less = [](const Tensor& x, const Tensor& zero) {
    return zero.defined() ? x.to(f32) - zero.to(f32) : x.to(f32);
  };
  return matmul(less(a, row_point(a_zero)), less(b, b_zero));
}

Results matmul_integer(const Call& c) {
  return {integer_product(c[0], c[1], c.optional(2), c.optional(3)).to(i32)};
}

Results qlinear_matmul(const Call& c) {
  const Tensor product = integer_product(c[0], c[3], c[2], c[5]);
  const Tensor scale = row_point(c[1]).to(f32) * c[4].to(f32) / c[6].to(f32);
  return {quantized(product * scale, full({}, 1, f32), c[7], c[7].dtype())};
}

Results conv_integer(const Call& c) {
  const Tensor x = centred(c[0], c.optional(2)), weight = centred(c[1], c.optional(3), 0);
  return {convolution(c, x, weight, {}).to(i32)};
}

Results qlinear_conv(const Call& c) {
  const Tensor x = centred(c[0], c[2]), weight = centred(c[3], c[5], 0);
  const Tensor bias = c.has(8) ? c[8].to(f32) : Tensor();
  const Tensor sums = convolution(c, x, weight, bias);
  const Tensor scale = c[1].to(f32).reshape({}) * c[4].to(f32) / c[6].to(f32).reshape({});
  return {quantized(sums * along_axis(scale, sums, 1), full({}, 1, f32), c[7], c[7].dtype())};
}

constexpr std::string_view kQuantizedConv =
    "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I";

constexpr Operator kQuantizeRows[] = {
    {"QuantizeLinear", 10, 2, 3, 1, "axis:i saturate:i output_dtype:i block_size:i",
     quantize_linear, refuse_quantize},
    {"DequantizeLinear", 10, 2, 3, 1, "axis:i block_size:i", dequantize_linear,
     [](const Node& n) { return refuse_unless(n, "block_size", 0); }},
    {"DynamicQuantizeLinear", 11, 1, 1, 3, "", dynamic_quantize_linear},
    {"MatMulInteger", 10, 2, 4, 1, "", matmul_integer},
    {"QLinearMatMul", 10, 8, 8, 1, "", qlinear_matmul},
    {"ConvInteger", 10, 2, 4, 1, kQuantizedConv, conv_integer, refuse_auto_pad},
    {"QLinearConv", 10, 8, 9, 1, kQuantizedConv, qlinear_conv, refuse_auto_pad},
};

}  // namespace

std::span<const Operator> quantize_operators() { return kQuantizeRows; }

}  // namespace tensor::onnx

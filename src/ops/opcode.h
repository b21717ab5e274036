// The operators by number, for the vector kernels as well: their sources may include C headers and
// each other only (src/kernels/host/simd/table.h), and this one.
#pragma once

#include <cstdint>

namespace tensor {

enum class Op : std::uint8_t {
  // pointwise.cpp: unary, binary, ternary
  negative,
  abs,
  sign,
  square,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  arcsin,
  arccos,
  arctan,
  sinh,
  cosh,
  tanh,
  arcsinh,
  arccosh,
  arctanh,
  erf,
  sigmoid,
  relu,
  gelu,
  gelu_tanh,
  silu,
  hardswish,
  softplus,
  mish,
  selu,
  hardsigmoid,
  floor,
  ceil,
  round,
  trunc,
  isnan,
  isinf,
  isfinite,
  logical_not,
  invert,
  astype,
  copy,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  remainder,
  fmod,
  power,
  arctan2,
  hypot,
  leaky_relu,  // of x and the slope
  elu,         // of x and alpha
  maximum,
  minimum,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  left_shift,
  right_shift,
  where,
  // reduce.cpp
  sum,
  mean,
  prod,
  max,
  min,
  var,
  any,
  all,
  argmax,
  argmin,
  // scan.cpp
  cumsum,
  cumprod,
  sort,
  argsort,
  // matmul.cpp
  matmul,
  all_reduce,  // the sum of a value over the devices that divide products; compile() alone makes it
  // quantized.cpp: of rows or images, weights i8 and their scales (of rows that are i8 perhaps
  // those of the rows, too); compile() alone makes them
  quantized_matmul,
  quantized_conv2d,
  // softmax.cpp, layer_norm.cpp
  softmax,
  log_softmax,
  layer_norm,
  row_sums,            // these two compile() alone makes
  layer_norm_by_sums,  // of x, weight, bias and row_sums(x)
  // conv2d.cpp, pool.cpp, resize.cpp, roi_align.cpp
  conv2d,
  conv_transpose2d,
  max_pool2d,
  avg_pool2d,
  interpolate,
  roi_align,
  // view.cpp
  reshape,
  transpose,
  slice,
  broadcast_to,
  // gather.cpp
  concatenate,
  pad,
  take,
  take_along_axis,
  put_along_axis,
  count_,
};

/// An elementwise operator on a line of floats: to[i] = f(from[k][i * strides[k]]...). Truth values
/// are 0 and 1; `to` may be an operand whose stride is 1.
using FloatLoop = void (*)(float* to, const float* const* from, const std::int64_t* strides,
                           std::int64_t count);

}  // namespace tensor

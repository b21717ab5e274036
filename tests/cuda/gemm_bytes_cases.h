// Products of rows in eight bits, of any extents, with what may follow them.
#pragma once

#include <cmath>

#include "src/core/rounding.h"
#include "src/ops/eight_bits.h"
#include "src/ops/op.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"

namespace tensor::cuda {

/// What follows the product; `bytes` are what bias and GELU make, by one scale that some exceed,
/// and `both` those beside it.
enum class After { nothing, bias_and_gelu, residual, bytes, both };

inline Tensor random_bytes(Generator& random, const Shape& shape) {
  return clip(round(random.normal(shape) * 50), -127, 127).astype(i8);
}

/// Weights as they lie in a graph, beyond the depth and the columns whatever there is.
inline Tensor random_strips(Generator& random, std::int64_t n, std::int64_t k) {
  return random_bytes(random,
                      {ceil_div(n, kByteColumns), ceil_div(k, kByteWord), kByteColumns, kByteWord});
}

struct BytesProduct {
  TensorFunction function;
  std::vector<Tensor> inputs;
};
inline BytesProduct bytes_product(Generator& random, const Shape& batch, std::int64_t m,
                                  std::int64_t n, std::int64_t k, After after,
                                  bool has_scales = true) {
  const Tensor weights = random_strips(random, n, k), scales = abs(random.normal({n})) / 127,
               bias = random.normal({n});
  const auto shape = [&](std::int64_t width) {
    Shape all = batch;
    all.push_back(m);
    all.push_back(width);
    return all;
  };
  const TensorFunction f = [=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    std::vector<Tensor> operands = {in[0], weights, scales};
    if (has_scales) operands.push_back(in[1]);
    const Tensor product = apply_op(Op::quantized_matmul, operands);
    if (after == After::nothing) return {product};
    if (after == After::bias_and_gelu) return {gelu(product + bias).astype(f16)};
    if (after == After::residual) return {product + bias + in.back()};
    const Tensor wide = gelu(product + bias),
                 bytes = round(maximum(wide * full({1}, 8, f32), -127)).astype(i8);
    return after == After::both ? std::vector{wide, bytes} : std::vector{bytes};
  };
  std::vector<Tensor> inputs = {random_bytes(random, shape(k))};
  if (has_scales) inputs.push_back(abs(random.normal(shape(1))));
  if (after == After::residual) inputs.push_back(random.normal(shape(n)));
  return {f, inputs};
}

/// The product, whose bits are compared, or what follows it.
inline emulator::GroupCase bytes_case(Generator& random, const Shape& batch, std::int64_t m,
                                      std::int64_t n, std::int64_t k, After after,
                                      std::mt19937* layouts = nullptr, bool has_scales = true) {
  const BytesProduct p = bytes_product(random, batch, m, n, k, after, has_scales);
  return emulator::GroupCase(p.function, p.inputs, layouts);
}

}  // namespace tensor::cuda

// Small plans of many operators, as texts for fuzzing::plan: the constants' types in the first line
// ("constant.3f f32 2 4;"), then the plan's own metadata, an entry a line, so that what is changed
// reaches its reader.
#pragma once

#include <string>
#include <vector>

#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tensor/tensor.h"

namespace tensor::fuzzing {

inline std::string plan_text(const Plan& plan) {
  const Safetensors file = parse_safetensors(plan.bytes(), "seed");
  std::string text;
  for (const auto& [name, x] : file.tensors) {
    text += name + ' ' + std::string(tensor::name(x.dtype()));
    for (const auto extent : x.shape()) text += ' ' + std::to_string(extent);
    text += ';';
  }
  text += '\n' + file.metadata.at("plan");
  for (std::size_t i = 0; i < plan.sizes().size(); ++i)
    text += '\n' + file.metadata.at("plan." + std::to_string(i));
  return text;
}

inline std::vector<std::string> plan_seeds() {
  using Tensors = std::vector<Tensor>;
  std::vector<std::string> seeds;
  const auto add = [&](const std::vector<TensorType>& inputs, const TensorFunction& function,
                       CompileOptions options = {}) {
    Plan plan;
    plan.add(compile(function, inputs, options));
    seeds.push_back(plan_text(plan));
  };
  const auto numbers = [](const Shape& shape) {
    return arange(num_elements(shape)).astype(f32).reshape(shape) * 0.125;
  };
  const std::vector<TensorType> matrix = {{{4, 6}, f32}}, image = {{{1, 4, 6, 6}, f32}};
  const Tensor weight = numbers({8, 6}), row = numbers({6});

  add(matrix, [](const Tensors& in) -> Tensors {  // functions of one number and of two
    const Tensor x = abs(in[0]) + 1;
    return {sqrt(x) + rsqrt(x) * exp(-x) - log(x),
            tanh(x) * sigmoid(x) + gelu(x) - silu(x),
            floor(x) + ceil(x) + round(x),
            power(x, 2.5) / remainder(x, 2),
            where(x > 2, maximum(x, 3), minimum(x, 1)),
            clip(floor_divide(x, 0.5), 0, 3)};
  });
  add({{{4, 6}, i32}, {{6}, boolean}}, [](const Tensors& in) -> Tensors {
    return {in[0] + in[1].astype(i32), in[0].astype(f64) * 0.5, logical_and(in[0] > 1, in[1]),
            isnan(in[0].astype(f16)),  logical_not(in[1]),      sign(in[0]) * square(in[0])};
  });
  add(matrix, [](const Tensors& in) -> Tensors {  // reductions
    return {sum(in[0], 1),    mean(in[0], 0, true),   prod(in[0], {0, 1}), max(in[0], 1),
            min(in[0], 0),    var(in[0], 1, true, 1), any(in[0] > 0, 1),   all(in[0] > 0, 0),
            argmax(in[0], 1), argmin(in[0], 0)};
  });
  add(matrix, [](const Tensors& in) -> Tensors {  // along lines
    const auto [values, places] = topk(in[0], 2, 1);
    return {cumsum(in[0], 1), sort(in[0], 0), argsort(in[0], 1),
            values,           places,         log_softmax(in[0], 0)};
  });
  add({{{2, 3, 4}, f32}, {{5}, i64}}, [](const Tensors& in) -> Tensors {  // views and gathers
    const Tensor& x = in[0];
    return {x.reshape({6, 4}).transpose({1, 0}) + 1,    x["::-1, 1:, ::2"] * 2,
            broadcast_to(x["0:1"], {4, 3, 4}) + x["0"], concatenate({x, x * 2}, 1),
            pad(x, {{1, 0}, {0, 2}, {1, 1}}, 0.5),      take(x, in[1] % 3, 1),
            take_along_axis(x, argsort(x, 2), 2)};
  });
  const auto block = [=](const Tensors& in) -> Tensors {  // as in a transformer
    const Tensor x = layer_norm(in[0], row, row);
    const Tensor y = linear(x, weight, numbers({8})).reshape({4, 2, 4}).transpose({1, 0, 2});
    const Tensor weights = softmax(matmul(y, y.swapaxes(-1, -2)) * 0.5, -1);
    return {gelu(matmul(weights, y)).transpose({1, 0, 2}).reshape({4, 8}), x};
  };
  add(matrix, block);
  add(matrix, block, {.fuse = false});
  add(image, [=](const Tensors& in) -> Tensors {  // as in an image network
    const Tensor x = relu(conv2d(in[0], numbers({8, 4, 3, 3}), numbers({8}), {.padding = 1}));
    const Tensor wide = conv_transpose2d(x, numbers({8, 2, 2, 2}), {}, {.stride = 2});
    return {max_pool2d(x, 2, 2, 0, true) + avg_pool2d(x, 2, 2, 0, true, false),
            interpolate(wide, {5, 7}, {.mode = Interpolation::bicubic}),
            interpolate(x, {3, 3}, {.mode = Interpolation::nearest}),
            roi_align(x, numbers({3, 5}), {2, 2}, {.sampling_ratio = 2})};
  });
  const Compiled many([=](const Tensors& in) -> Tensors { return {linear(in[0], weight) + 1}; });
  for (const std::int64_t rows : {1, 4, 9}) many.executable({numbers({rows, 6})});
  seeds.push_back(plan_text(many.plan()));
  return seeds;
}

}  // namespace tensor::fuzzing

// Whole functions planned for GPUs of several kinds, every group on the emulator.
#include <gtest/gtest.h>

#include "tensor/nn.h"
#include "tensor/tensor.h"
#include "tests/cuda/on_device.h"

namespace tensor::emulator {
namespace {

Tensor normal(const Shape& shape, double scale = 1) {
  static Generator random(23);
  return random.normal(shape) * static_cast<float>(scale);
}

// A block of a transformer: [batch, tokens, 64] with two heads of 32.
TensorFunction transformer() {
  const auto linear = [](std::int64_t out, std::int64_t in) {
    return [w = normal({out, in}, 0.2), b = normal({out})](const Tensor& x) {
      return matmul(x, w.transpose()) + b;
    };
  };
  const auto norm = [] {
    return [w = normal({64}), b = normal({64})](const Tensor& x) { return layer_norm(x, w, b); };
  };
  const auto q = linear(64, 64), k = linear(64, 64), v = linear(64, 64), out = linear(64, 64);
  const auto up = linear(128, 64), down = linear(64, 128);
  const auto first = norm(), second = norm();
  return [=](const Tensors& in) -> Tensors {
    const Tensor& x = in[0];
    const auto heads = [&](const Tensor& y) {
      return y.reshape({x.shape(0), x.shape(1), 2, 32}).transpose({0, 2, 1, 3});
    };
    const Tensor n = first(x);
    const Tensor attended = scaled_dot_product_attention(heads(q(n)), heads(k(n)), heads(v(n)));
    const Tensor y = x + out(attended.transpose({0, 2, 1, 3}).reshape(x.shape()));
    return {y + down(gelu(up(second(y))))};
  };
}

TEST(PlanOnEmulator, Transformer) {
  const TensorFunction f = transformer();
  for (const auto& [capability, dtype] :
       {std::pair{75, f16}, {80, bf16}, {90, f16}, {100, bf16}, {120, f32}}) {
    SCOPED_TRACE(capability);
    expect_plan_emulated(f, {normal({2, 37, 64})}, {.dtype = dtype}, capability);
  }
  for (const auto& [capability, dtype] : {std::pair{75, f16}, {80, bf16}, {90, f16}}) {
    SCOPED_TRACE("narrow residuals, " + std::to_string(capability));
    expect_plan_emulated(f, {normal({2, 37, 64})}, {.dtype = dtype, .narrow_residuals = true},
                         capability);
  }
}

// Images: a stem, a residual of two convolutions, pooling, and a head.
TensorFunction network() {
  const Tensor stem = normal({16, 3, 3, 3}, 0.3), first = normal({16, 16, 3, 3}, 0.1),
               second = normal({16, 16, 3, 3}, 0.1), head = normal({16, 10});
  const Tensor scale = normal({16, 1, 1}), shift = normal({16, 1, 1});
  return [=](const Tensors& in) -> Tensors {
    const Conv2dOptions padded{.stride = 1, .padding = 1};
    Tensor x = relu(conv2d(in[0], stem, {}, {.stride = 2, .padding = 1}) * scale + shift);
    x = max_pool2d(x, 2);
    x = relu(x + conv2d(relu(conv2d(x, first, {}, padded)), second, {}, padded));
    return {matmul(mean(x, {2, 3}), head)};
  };
}

TEST(PlanOnEmulator, ConvolutionalNetwork) {
  const TensorFunction f = network();
  for (const auto& [capability, dtype] : {std::pair{75, f16}, {80, f32}, {90, f16}, {90, f32}}) {
    SCOPED_TRACE(capability);
    expect_plan_emulated(f, {normal({2, 3, 20, 28})}, {.dtype = dtype}, capability);
  }
}

TEST(PlanOnGpu, IsRight) {
  if (const std::string why = no_device(); !why.empty()) GTEST_SKIP() << why;
  for (const DType dtype : {f16, f32}) {
    expect_plan_on_device(transformer(), {normal({2, 197, 64})}, {.dtype = dtype});
    expect_plan_on_device(network(), {normal({2, 3, 36, 44})}, {.dtype = dtype});
  }
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE("narrow residuals");
    expect_plan_on_device(transformer(), {normal({2, 197, 64})},
                          {.dtype = dtype, .narrow_residuals = true});
  }
}

}  // namespace
}  // namespace tensor::emulator

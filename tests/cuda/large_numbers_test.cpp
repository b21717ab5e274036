// Activations of 1e4 and LayerNorm inputs of 1e3, which trained transformers have, in 16 bits on
// the emulated GPU and on a real one: results are finite and as exact as their types allow, and
// float16 overflows only where the result itself is too large for it.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "tensor/tensor.h"
#include "tests/cuda/on_device.h"

namespace tensor::emulator {
namespace {

struct Target {
  DType dtype;
  int capability;  // of the emulated GPU; 0: this machine's GPU
};

class LargeNumbers : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    const auto& [dtype, capability] = GetParam();
    if (capability > 0) return;
    if (const std::string why = no_device(dtype == bf16 ? 80 : 75); !why.empty())
      GTEST_SKIP() << why;
  }
  void expect_right(const TensorFunction& f, const Tensors& inputs, bool narrow_images = false) {
    const auto& [dtype, capability] = GetParam();
    const Precision precision{.dtype = dtype, .narrow_images = narrow_images};
    if (capability > 0)
      expect_plan_emulated(f, inputs, precision, capability);
    else
      expect_plan_on_device(f, inputs, precision);
  }
  // One value in fifty is as large as trained transformers have them, `largest`.
  Tensor with_outliers(const Shape& shape, double largest) {
    const Tensor x = random_.normal(shape);
    return where(random_.uniform(shape) < 0.02, x * largest, x);
  }
  Tensor normal(const Shape& shape, double scale) { return random_.normal(shape) * scale; }

 private:
  Generator random_{31};
};

std::string name_of(const ::testing::TestParamInfo<Target>& it) {
  const auto& [dtype, capability] = it.param;
  return std::string(name(dtype)) +
         (capability > 0 ? "_sm" + std::to_string(capability) : "_on_device");
}

INSTANTIATE_TEST_SUITE_P(Types, LargeNumbers,
                         ::testing::Values(Target{f16, 75}, Target{f16, 80}, Target{bf16, 80},
                                           Target{f16, 90}, Target{bf16, 90}, Target{f16, 0},
                                           Target{bf16, 0}),
                         name_of);

TEST_P(LargeNumbers, ProductsWithEpilogues) {
  const Tensor w = normal({72, 128}, 1 / std::sqrt(128.0)), bias = normal({72}, 1e3);
  expect_right(
      [=](const Tensors& in) -> Tensors {
        return {gelu(matmul(in[0], w.transpose()) + bias) + in[1]};
      },
      {with_outliers({65, 128}, 1e4), normal({65, 72}, 1e4)});
  expect_right(
      [=](const Tensors& in) -> Tensors { return {relu(matmul(in[0], w.transpose()) + bias)}; },
      {normal({33, 128}, 1e4)});
}

// What is stored in float16 is infinite exactly where it has to be.
TEST_P(LargeNumbers, ProductsThatOverflow) {
  const DType dtype = GetParam().dtype;
  const Tensor w = normal({40, 64}, 0.5);
  expect_right(
      [=](const Tensors& in) -> Tensors { return {matmul(in[0], w.transpose()).astype(dtype)}; },
      {normal({50, 64}, 1e4)});
}

TEST_P(LargeNumbers, LayerNormAndWhatFollows) {
  const Tensor gain = normal({128}, 1), bias = normal({128}, 1),
               w = normal({64, 128}, 1 / std::sqrt(128.0));
  // All features of a token far from zero, which their mean takes away.
  const Tensor x = with_outliers({33, 128}, 1e3) + 1e3;
  expect_right([=](const Tensors& in) -> Tensors { return {layer_norm(in[0], gain, bias, 1e-6)}; },
               {x});
  expect_right(
      [=](const Tensors& in) -> Tensors {
        const Tensor sum = in[0] + in[1];
        return {sum, matmul(layer_norm(sum, gain, bias, 1e-6), w.transpose())};
      },
      {x, with_outliers({33, 128}, 1e3)});
  // Of rows that a product makes.
  const Tensor before = normal({128, 64}, 1 / 8.0);
  expect_right(
      [=](const Tensors& in) -> Tensors {
        const Tensor sum = matmul(in[1], before.transpose()) + in[0];
        return {sum, matmul(layer_norm(sum, gain, bias, 1e-6), w.transpose())};
      },
      {x, with_outliers({33, 64}, 1e3)});
}

// What is normalised may have been stored in float16: close to the largest that it holds is no
// limit.
TEST_P(LargeNumbers, LayerNormOfSumsCloseToTheLargestHalf) {
  const Tensor gain = normal({128}, 1), bias = normal({128}, 1),
               w = normal({64, 128}, 1 / std::sqrt(128.0));
  const Tensor x = clip(with_outliers({33, 128}, 3e4), -4e4, 4e4), y = normal({33, 128}, 5e3);
  expect_right(
      [=](const Tensors& in) -> Tensors {
        const Tensor sum = in[0] + in[1];
        return {sum, matmul(layer_norm(sum, gain, bias, 1e-6), w.transpose())};
      },
      {x, y});
}

// The images between convolutions may be stored in 16 bits, too: 1e4 times a few is within them.
TEST_P(LargeNumbers, Convolutions) {
  const Tensor window = normal({24, 16, 3, 3}, 1 / 12.0), bias = normal({24, 1, 1}, 1e3),
               point = normal({16, 24, 1, 1}, 1 / std::sqrt(24.0));
  for (const bool narrow_images : {false, true})
    expect_right(
        [=](const Tensors& in) -> Tensors {
          const Tensor x = relu(conv2d(in[0], window, {}, {.padding = 1}) + bias);
          return {relu(conv2d(x, point) + in[0])};
        },
        {normal({1, 16, 9, 11}, 1e4)}, narrow_images);
}

TEST_P(LargeNumbers, Softmax) {
  expect_right([](const Tensors& in) -> Tensors { return {softmax(in[0], -1)}; },
               {normal({17, 197}, 1e4)});
}

TEST_P(LargeNumbers, Attention) {
  const auto heads = [](const Tensor& x) { return x.transpose({0, 2, 1, 3}); };
  expect_right(
      [=](const Tensors& in) -> Tensors {
        const Tensor scores = matmul(heads(in[0]), in[1].transpose({0, 2, 3, 1})) * 0.125;
        return {matmul(softmax(scores, -1), heads(in[2]))};
      },
      {normal({1, 33, 2, 64}, 30), normal({1, 65, 2, 64}, 30), normal({1, 65, 2, 64}, 1e4)});
}

}  // namespace
}  // namespace tensor::emulator

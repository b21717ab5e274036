// The conv family against the reference: options, layouts, epilogues, types.
#include <gtest/gtest.h>

#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

struct ConvCase {
  Tensor x, weight, bias;
  tn::Conv2dOptions options;
  double scale;  // of the result: the root of the number of its terms
};

ConvCase any_conv(tn::DType dtype) {
  const std::int64_t groups = pick(3) ? 1 : 1 + pick(4);
  const std::int64_t in = groups * (1 + pick(20)), out = groups * (1 + pick(20));
  const std::int64_t kh = 1 + pick(4), kw = 1 + pick(4);
  ConvCase c;
  c.options = {{1 + pick(3), 1 + pick(3)}, {pick(3), pick(3)}, {1 + pick(2), 1 + pick(2)}, groups};
  c.x = normal({1 + pick(2), in, 8 + pick(14), 8 + pick(14)}, dtype);
  c.weight = normal({out, in / groups, kh, kw}, dtype);
  if (pick(2)) c.bias = normal({out}, dtype);
  c.scale = 8 * std::sqrt(static_cast<double>(in / groups * kh * kw + 1));
  return c;
}

// K terms of rounding, relative to the size of the sum.
constexpr double kF32 = 4e-6;

TEST(Conv, RandomOptionsAndLayouts) {
  for (int round = 0; round < 120; ++round) {
    const bool is_short = round % 4 == 3 && tn::cpu::this_machine().has_bf16;
    const ConvCase c = any_conv(is_short ? tn::bf16 : tn::f32);
    const bool constant = pick(3);
    Tensors inputs{c.x};
    if (!constant) inputs.push_back(c.weight);
    const GroupRun run = run_group(
        "conv",
        [&](const Tensors& in) -> Tensors {
          return {tn::conv2d(in[0], constant ? c.weight : in[1], c.bias, c.options)};
        },
        inputs, pick(3) ? &random_engine() : nullptr);
    expect_close(run, kF32, c.scale);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Conv, Epilogues) {
  int residuals = 0;
  for (int round = 0; round < 80; ++round) {
    ConvCase c = any_conv(tn::f32);
    if (round % 2) {  // as in a ResNet
      const std::int64_t in = 16 * (1 + pick(3)), out = 16 * (1 + pick(3)), k = 1 + 2 * pick(2);
      c.x = normal({1, in, 14, 10 + pick(9)});
      c.weight = normal({out, in, k, k});
      c.bias = normal({out});
      c.options = {1 + pick(2), (k - 1) / 2, 1, 1};
      c.scale = 8 * std::sqrt(static_cast<double>(in * k * k));
    }
    const Tensor plain = tn::conv2d(c.x, c.weight, c.bias, c.options);
    const int kind = round / 2 % 4;
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor y = tn::conv2d(in[0], c.weight, c.bias, c.options);
      switch (kind) {
        case 0:
          return {tn::relu(y)};
        case 1:
          return {tn::relu(y + in[1])};
        case 2:
          return {tn::gelu(y * in[2])};
        default:
          return {tn::relu(y + in[2]) * in[1] * 0.5};
      }
    };
    const Tensors inputs{c.x, normal(plain.shape()), normal({plain.shape(1), 1, 1})};
    // Odd shapes may only have an implementation that gets residuals wrong: those are declined.
    const bool may_decline = round % 2 == 0 && kind % 2 == 1;
    if (may_decline && !accepts("conv", f, inputs)) continue;
    residuals += kind % 2;
    expect_close(run_group("conv", f, inputs, pick(3) ? &random_engine() : nullptr), kF32,
                 6 * c.scale);
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GE(residuals, 20);
}

TEST(Conv, Declines) {
  const Tensor x = normal({1, 3, 8, 8}), w = normal({4, 3, 3, 3}), row = normal({6});
  const auto declines = [](const tn::TensorFunction& f, const Tensors& in) {
    return !accepts("conv", f, in);
  };
  // Along the columns of the image, not its channels.
  EXPECT_TRUE(declines([&](const Tensors& in) -> Tensors { return {tn::conv2d(in[0], w) + in[1]}; },
                       {x, row}));
  EXPECT_TRUE(
      declines([&](const Tensors& in) -> Tensors { return {tn::conv2d(in[0], w.astype(tn::f64))}; },
               {x.astype(tn::f64)}));
  EXPECT_TRUE(declines(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = tn::conv2d(in[0], w);
        return {y, tn::relu(y)};
      },
      {x}));
  EXPECT_TRUE(declines([&](const Tensors& in) -> Tensors { return {tn::relu(in[0])}; }, {x}));
  // Casts that compute.
  for (const tn::DType to : {tn::boolean, tn::i32})
    EXPECT_TRUE(declines(
        [&](const Tensors& in) -> Tensors {
          return {tn::relu(tn::conv2d(in[0], w)).astype(to).astype(tn::f32)};
        },
        {x}));
}

}  // namespace

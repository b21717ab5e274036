// Numbers whose sums, squares or products leave float32, in which kernels calculate and eager calls
// do not (docs/differences.md): verify tells them from faults.
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

using Function = Tensor (*)(const Tensor&);

std::vector<tn::GroupCheck> checks_of(Function f, const Tensor& x) {
  return tn::verify(tn::compile([&](const Tensors& in) { return Tensors{f(in[0])}; }, {x}), {x});
}

TEST(LargeValues, VerifyHasNoBound) {
  const Tensor squares = tn::array({1e20f, -1e20f, 1e20f, -1e20f}).reshape({1, 4}),
               sums = tn::full({2, 64}, 3e38, tn::f32),
               tiny = tn::array({1e-25f, -1e-25f, 1e-25f, -1e-25f}).reshape({1, 4});
  const std::pair<Function, Tensor> cases[] = {
      {[](const Tensor& x) { return tn::layer_norm(x); }, squares},
      {[](const Tensor& x) { return tn::layer_norm(x, {}, {}, 1e-35); }, tiny},
      {[](const Tensor& x) { return tn::group_norm(x, 1); }, squares.reshape({1, 4, 1})},
      {[](const Tensor& x) { return tn::var(x, 1); }, squares},
      {[](const Tensor& x) { return tn::mean(x, 1); }, sums},
      {[](const Tensor& x) { return tn::sum(x, 1) * 0.001; }, sums},
      {[](const Tensor& x) { return tn::prod(x, 1); }, squares},
      {[](const Tensor& x) { return tn::cumsum(x, 1); }, tn::concatenate({sums, -sums}, 1)},
      {[](const Tensor& x) { return tn::avg_pool2d(x, 2); }, sums.reshape({1, 2, 8, 8})},
      {[](const Tensor& x) { return tn::matmul(x, tn::transpose(x)); }, squares},
      {[](const Tensor& x) { return tn::conv2d(x, x(tn::slice(0, 1))); },
       tn::concatenate({squares, -squares}, 0).reshape({2, 2, 2, 1})}};
  for (const auto& [f, x] : cases)
    for (const tn::GroupCheck& check : checks_of(f, x)) {
      EXPECT_TRUE(check.ok()) << check.operators << " " << check.error;
      EXPECT_TRUE(std::isinf(check.bound)) << check.operators;
    }
}

// Among them what stands for "behind a mask", for whose sake no fault of softmax may be overlooked.
TEST(LargeValues, OtherwiseItHas) {
  const Tensor x = tn::Generator(5).normal({4, 8}), hidden = x(tn::all_of_axis, tn::slice(0, 4));
  const std::pair<Function, Tensor> cases[] = {
      {[](const Tensor& v) { return tn::softmax(v); },
       tn::concatenate({hidden, tn::full({4, 4}, -3.4e38, tn::f32)}, 1)},
      {[](const Tensor& v) { return tn::layer_norm(v); }, x * 1e15},
      {[](const Tensor& v) { return tn::layer_norm(v); }, x * 1e-25},
      {[](const Tensor& v) { return tn::mean(v, 1); }, x * 1e35},
      {[](const Tensor& v) { return tn::max(v, 1); }, x * 1e38},
      {[](const Tensor& v) { return tn::matmul(v, tn::transpose(v)); }, x * 1e15}};
  for (const auto& [f, input] : cases)
    for (const tn::GroupCheck& check : checks_of(f, input)) {
      EXPECT_TRUE(check.ok()) << check.operators << " " << check.error;
      EXPECT_FALSE(std::isinf(check.bound)) << check.operators;
    }
}

// Fused, a number stays in float32 where the eager run makes an infinity of it.
TEST(LargeValues, IntermediatesInF16) {
  const Tensor x = tn::full({2, 8}, 300, tn::f16);
  for (const tn::GroupCheck& check : checks_of([](const Tensor& v) { return v * v * 0.001; }, x))
    EXPECT_TRUE(check.ok()) << check.operators << " " << check.error;
}

}  // namespace

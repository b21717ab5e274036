// Products that oneDNN has no primitive for: they run all the same, and are right.
#include <gtest/gtest.h>

#include "tensor/compile.h"
#include "tensor/tensor.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

Tensor whole(tn::Generator& random, const tn::Shape& shape) {
  return random.randint(-3, 4, shape).astype(tn::f32);
}

void expect_compiled(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs) {
  EXPECT_EQ(tn::compile(f, inputs)(inputs)[0].to_vector<float>(), f(inputs)[0].to_vector<float>());
}

// Backwards, repeated, transposed, every second.
TEST(ProductLayouts, ConstantsLieInAnyWay) {
  tn::Generator random(tn::check::seed());
  const Tensor x = whole(random, {5, 6}), w = whole(random, {6, 4});
  const Tensors weights = {tn::flip(w),
                           tn::flip(w, {1}),
                           tn::broadcast_to(w(tn::slice(0, 1)), {6, 4}),
                           tn::broadcast_to(w(tn::all_of_axis, tn::slice(0, 1)), {6, 4}),
                           tn::copy(w.transpose()).transpose(),
                           whole(random, {12, 8})["::2, ::2"],
                           tn::flip(whole(random, {12, 8}))["::2, ::2"]};
  for (const Tensor& weight : weights) {
    expect_compiled([&](const Tensors& in) { return Tensors{tn::matmul(in[0], weight)}; }, {x});
    expect_compiled(
        [&](const Tensors& in) { return Tensors{tn::relu(tn::matmul(in[0], weight) + 1)}; },
        {tn::flip(x)});
  }
}

TEST(ProductLayouts, AsManyAxesAsTensorsHave) {
  tn::Generator random(tn::check::seed());
  tn::Shape shape;
  for (int axis = 0; axis < tn::kMaxRank - 2; ++axis) shape.push_back(1 + axis % 3 / 2);
  shape.push_back(3), shape.push_back(3);
  expect_compiled([](const Tensors& in) { return Tensors{tn::matmul(in[0], in[1])}; },
                  {whole(random, shape), whole(random, shape)});
}

TEST(ProductLayouts, TransposedConvolutionsOfAnyStride) {
  tn::Generator random(tn::check::seed());
  const Tensor x = whole(random, {2, 6, 5, 7});
  for (const std::int64_t stride : {1, 2, 3})
    for (const std::int64_t groups : {1, 2, 6}) {
      const tn::ConvTranspose2dOptions options{
          .stride = {stride, 2}, .padding = 1, .output_padding = {stride - 1, 1}, .groups = groups};
      const Tensor weight = whole(random, {6, 24 / groups, 3, 2}), more = whole(random, {24});
      expect_compiled(
          [&](const Tensors& in) {
            return Tensors{tn::relu(tn::conv_transpose2d(in[0], weight, more, options)) * 2};
          },
          {x});
      expect_compiled(
          [&](const Tensors& in) {
            return Tensors{tn::conv_transpose2d(in[0], in[1], {}, options)};
          },
          {x, weight});
    }
}

TEST(ProductLayouts, LongEpilogues) {
  tn::Generator random(tn::check::seed());
  Tensors inputs = {whole(random, {5, 6}), whole(random, {6, 4})};
  for (int i = 0; i < 40; ++i) inputs.push_back(whole(random, {5, 4}));
  expect_compiled(
      [](const Tensors& in) {
        Tensor y = tn::matmul(in[0], in[1]);
        for (std::size_t i = 2; i < in.size(); ++i) y = y + in[i];
        return Tensors{y};
      },
      inputs);
}

}  // namespace

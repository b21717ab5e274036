// Compiled functions against the eager run.
#include "tensor/compile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/runtime/program.h"
#include "src/trace/layout.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// Compiles, runs twice (the second time in a used arena) and compares with the eager result:
// |difference| at most `bound` ulps of the largest magnitude of the output.
void expect_equal(const tn::TensorFunction& f, const Tensors& inputs, double bound) {
  const Tensors expected = f(inputs);
  for (const bool fuse : {true, false}) {
    const tn::Executable fast = tn::compile(f, inputs, {.fuse = fuse});
    fast(inputs);
    const Tensors got = fast(inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].type(), expected[i].type());
      const auto a = got[i].to_vector<double>(), b = expected[i].to_vector<double>();
      double largest = 0;
      for (const double value : b) largest = std::max(largest, std::abs(value));
      for (std::size_t k = 0; k < a.size(); ++k)
        ASSERT_NEAR(a[k], b[k], bound * 1.2e-7 * largest) << "output " << i << " element " << k;
    }
  }
}

TEST(Compile, LinearWithEpilogue) {
  tn::Generator random(11);
  const Tensor x = random.normal({2, 7, 33}), weight = random.normal({20, 33}),
               bias = random.normal({20});
  const Tensor residual = random.normal({2, 7, 20});
  // The sum of 33 products of standard normals, compared at sqrt(33) * a few ulps.
  expect_equal(
      [&](const Tensors& in) -> Tensors {
        return {tn::gelu(tn::linear(in[0], weight, bias)) + in[1]};
      },
      {x, residual}, 32);
  expect_equal(
      [&](const Tensors& in) -> Tensors { return {tn::relu(tn::linear(in[0], weight)) * 0.5}; },
      {x}, 32);
}

TEST(Compile, HeadsAreMergedWithoutACopy) {
  tn::Generator random(12);
  const Tensor x = random.normal({2, 5, 3, 4}), y = random.normal({2, 3, 5, 5});
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::exp(tn::matmul(in[1], in[0].transpose({0, 2, 1, 3}))
                        .transpose({0, 2, 1, 3})
                        .reshape({2, 5, 12}))};
  };
  expect_equal(f, {x, y}, 64);
}

TEST(Compile, OutputsThatAreViewsInputsAndConstants) {
  tn::Generator random(13);
  const Tensor x = random.normal({3, 4}), weight = random.normal({4, 4});
  expect_equal(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = in[0] + 1;
        return {y.transpose(), y, in[0], weight, y};
      },
      {x}, 0);
}

TEST(Compile, WrongInputsAreNamed) {
  const tn::Executable f =
      tn::compile([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {tn::zeros({2, 3})});
  try {
    f({tn::zeros({3, 2})});
    FAIL() << "no error";
  } catch (const tn::UserError& error) {
    EXPECT_STREQ(error.what(),
                 "run: input 0 is f32(3, 2), this executable was compiled for f32(2, 3): compile "
                 "it again for other types");
  }
}

}  // namespace

// LayerNorms between products: which are given sums of rounded rows, and what rounding costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

// After the passes of a program in `dtype`.
Graph cast_for(const tn::TensorFunction& function, const std::vector<tn::TensorType>& types,
               tn::DType dtype) {
  const Graph products = tn::cast_products(tn::fold_constants(tn::trace(function, types)), dtype);
  const Graph norms = tn::cast_norms(products, dtype);
  tn::verify(norms, "cast_norms");
  return tn::eliminate_common_and_dead(norms);
}

// The norms by sums of what they read, which is rounded to f16.
int norms_with_sums(const tn::TensorFunction& function) {
  const Graph graph = cast_for(function, {{{2, 6, 64}, tn::f32}, {{2, 6, 64}, tn::f16}}, tn::f16);
  int found = 0;
  for (tn::ValueId id = 0; id < graph.size(); ++id) {
    const bool is_by_sums = graph.is_op(id, tn::Op::layer_norm_by_sums);
    if (!is_by_sums && !graph.is_op(id, tn::Op::layer_norm)) continue;
    EXPECT_EQ(graph.type(id).dtype, tn::f32) << "statistics stay float32";
    const auto& inputs = graph[id].inputs;
    if (!is_by_sums) continue;
    ++found;
    const tn::ValueId rows = graph[inputs[0]].inputs[0];
    EXPECT_TRUE(graph.is_op(rows, tn::Op::astype) && graph.type(rows).dtype == tn::f16);
    EXPECT_TRUE(graph.is_op(inputs[3], tn::Op::row_sums) && graph[inputs[3]].inputs[0] == rows);
  }
  return found;
}

TEST(CastNorms, NormsOfProductsByProductsAreGivenSums) {
  tn::Generator random(26);
  const Tensor a = random.normal({64, 64}), b = random.normal({64, 64}),
               gamma = random.normal({64}), beta = random.normal({64});
  const auto norm = [&](const Tensor& x) { return tn::layer_norm(x, gamma, beta); };
  const auto made = [&](const Tensor& x) { return tn::matmul(x, b) + beta + x; };
  const auto count_in = [](auto f) {
    return norms_with_sums([f](const Tensors& in) -> Tensors { return {f(in[0])}; });
  };
  // Of two products, and of one behind views.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return tn::matmul(y, a) * tn::matmul(y, b);
            }),
            1);
  EXPECT_EQ(
      count_in([&](const Tensor& x) { return tn::matmul(norm(made(x))(tn::all_of_axis, 0), a); }),
      1);
  // Not of what no product makes, or only seen through a view, or for others as well.
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(tn::exp(x)), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(norm(made(x))), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(made(x).swapaxes(0, 1)), a); }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              const Tensor product = tn::matmul(in[0], b);
              return {product, tn::matmul(norm(product + in[0]), a)};
            }),
            0);
  // Nor without weight and bias, nor of rows that are no whole pieces.
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(tn::layer_norm(made(x)), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = tn::matmul(x, random.normal({64, 40}));
              return tn::matmul(tn::layer_norm(y, gamma(tn::slice(0, 40)), beta(tn::slice(0, 40))),
                                a(tn::slice(0, 40)));
            }),
            0);
  // Nor when somebody else reads the normalised value: a residual, the caller, attention.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return y + tn::matmul(y, a);
            }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              const Tensor y = norm(made(in[0]));
              return {tn::matmul(y, a), y.swapaxes(0, 1)};
            }),
            0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return tn::matmul(tn::matmul(y, a), y.swapaxes(1, 2).reshape({2, 64, 6}));
            }),
            0);
  // Nor as the right operand, nor where the weight is the caller's, nor when the input is narrow.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              return tn::matmul(b(tn::slice(0, 6), tn::slice(0, 6)), norm(made(x)));
            }),
            0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              return tn::matmul(tn::layer_norm(made(x), x(0, 0), beta), a);
            }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              return {tn::matmul(norm(tn::exp(in[1]).astype(tn::f32)), a)};
            }),
            0);
}

// f64 weights make a float64 function; in f32 all of x, mean and deviation are as good as exact.
TEST(CastNorms, RoundingBeforeANormCostsWhatTheBoundSays) {
  constexpr std::int64_t kRows = 24, kWidth = 128, kColumns = 40;
  tn::Generator random(27);
  const Tensor w = random.normal({kWidth, kColumns}), gamma = random.normal({kWidth}, 1, 0.3f),
               beta = random.normal({kWidth}), one = tn::eye(kWidth);
  for (const auto& [dtype, unit] : {std::pair{tn::f16, 0x1p-11}, {tn::bf16, 0x1p-8}})
    for (const double mean : {0.0, 0.5, 8.0}) {
      SCOPED_TRACE(testing::Message() << dtype << ", mean " << mean);
      // Of so few digits that a product by 1 in the narrow type is exact.
      const Tensor input = tn::round(random.normal({kRows, kWidth}) * 16) / 16 + mean;
      const tn::TensorFunction f = [&](const Tensors& in) -> Tensors {
        return {tn::matmul(tn::layer_norm(tn::matmul(in[0], one) * 3.0, gamma, beta), w)};
      };
      const Graph graph = cast_for(f, {input.type()}, dtype);
      ASSERT_EQ(count(graph, tn::Op::row_sums), 1) << graph;
      ASSERT_EQ(count(graph, tn::Op::astype), 6) << graph;
      const auto got = tn::interpret(graph, {input})[0].to_vector<double>();
      const Tensor x = input.astype(tn::f64) * 3.0, w64 = w.astype(tn::f64);
      const Tensor centred = x - tn::mean(x, -1, true);
      const Tensor deviation = tn::sqrt(tn::mean(centred * centred, -1, true) + 1e-5);
      const Tensor unit_rows = centred / deviation;
      const Tensor normal = unit_rows * gamma.astype(tn::f64) + beta.astype(tn::f64);
      const Tensor exact = tn::matmul(normal, w64);
      // To first order: rounding moves x by u |x|, a row's mean by u rms(x) at most and its
      // deviation, as a share of it, by u rms(x) / deviation. Then the normalised value, the
      // weights and the result are rounded.
      const Tensor rms = tn::sqrt(tn::mean(x * x, -1, true));
      const Tensor moved = (tn::abs(x) + rms + tn::abs(unit_rows) * rms) / deviation *
                           tn::abs(gamma.astype(tn::f64));
      const Tensor bound =
          (tn::matmul(moved + 2.0 * tn::abs(normal), tn::abs(w64)) + tn::abs(exact)) * unit;
      const auto y = exact.to_vector<double>(), most = bound.to_vector<double>();
      double square = 0, largest = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        // A tenth for what is of second order: u rms(x) / deviation is 1/32 at most.
        ASSERT_NEAR(got[i], y[i], 1.1 * most[i]);
        square += std::pow(got[i] - y[i], 2), largest = std::max(largest, most[i]);
      }
      // The errors are independent, so that few of these sums come near the bound.
      EXPECT_LT(std::sqrt(square / static_cast<double>(y.size())), largest / 4);
      EXPECT_GT(square, 0);
    }
}

}  // namespace

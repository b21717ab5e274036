// The error that reports tell of products in eight bits, and the one that they have.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "src/runtime/eight_bit_error.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/quantize.h"
#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/tensor.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

double size_of(const Tensor& x) { return std::sqrt(tn::sum(tn::square(x.astype(tn::f64))).item()); }

TEST(EightBitError, IsTheOneThatProductsHave) {
  tn::Generator random(1);
  const Tensor first = random.normal({40, 200}), head = random.normal({90, 20});
  const Tensor weights = random.normal({200, 90}) * random.uniform({1, 90}, 0.1, 5);
  const Tensor x = random.normal({100, 40});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::tanh(tn::matmul(in[0], first)), weights)};
  };
  const auto whole = [&](const Tensors& in) -> Tensors {
    return {tn::matmul(tn::tanh(f(in)[0]), head)};
  };
  const tn::Graph graph =
      tn::quantize_products(tn::fold_constants(tn::trace(whole, {x.type()})), {});
  tn::ValueId product = 0;
  while (!graph.is_op(product, tn::Op::quantized_matmul)) ++product;
  const Tensor rows = tn::tanh(tn::matmul(x, first)), want = f({x})[0];
  const tn::Node& node = graph[product];
  const Tensor got =
      tn::apply_op(node.op, {rows, graph[node.inputs[1]].constant, graph[node.inputs[2]].constant});
  const double told = tn::eight_bit_error(graph, product, tn::const_view(rows));
  const double is = size_of(got - want) / size_of(want);
  EXPECT_NEAR(told, is, 0.1 * is);
  EXPECT_GT(is, 0.002);
  const Tensor zeros = tn::zeros_like(rows);
  EXPECT_EQ(tn::eight_bit_error(graph, product, tn::const_view(zeros)), 0);

  const tn::Executable fast = tn::compile(whole, Tensors{x}, {.dtype = tn::i8});
  std::ostringstream report;
  fast.report(report, {x}, 1);
  EXPECT_NE(
      report.str().find("; eight bits add " + std::to_string(told * 100).substr(0, 3) + " %]"),
      std::string::npos)
      << report.str() << told;
}

}  // namespace

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
#include "tests/error_of.h"
#include "tests/temporary_folder.h"

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
  EXPECT_NE(report.str().find("; dynamic eight bits add " +
                              std::to_string(told * 100).substr(0, 3) + " %]"),
            std::string::npos)
      << report.str() << told;
}

// The second of three products reads rows in which one number exceeds all others.
struct Spoiled {
  Tensor first, outlier, second, third, head;
  explicit Spoiled(tn::Generator random)
      : first(random.normal({40, 64})),
        outlier(tn::where(tn::arange(64) == 7, 300, 1).astype(tn::f32)),
        second(random.normal({64, 64}) / 8),
        third(random.normal({64, 64}) / 8),
        head(random.normal({64, 20})) {}
  std::vector<Tensor> operator()(const std::vector<Tensor>& in) const {
    const Tensor rows = tn::tanh(tn::matmul(in[0], first));
    const Tensor y = tn::matmul(rows, third) + tn::matmul(rows * outlier, second);
    return {tn::matmul(tn::tanh(y), head)};
  }
  std::vector<std::pair<std::string, Tensor>> names() const {
    return {{"second.weight", second}, {"third.weight", third}};
  }
};

TEST(ToExclude, TheWorstProductsUntilItIsExactEnough) {
  tn::Generator random(3);
  const Spoiled f(random);
  const Tensors x = {tn::Generator(4).normal({50, 40})};
  using Names = std::vector<std::string>;
  EXPECT_EQ(tn::to_exclude(f, x, 0.5, {.names = f.names()}), Names{});
  EXPECT_EQ(tn::to_exclude(f, x, 0.02, {.names = f.names()}), Names{"second"});
  EXPECT_EQ(tn::to_exclude(f, x, 1e-6, {.names = f.names()}), (Names{"second", "third"}));
  EXPECT_EQ(tn::to_exclude(f, x, 1e-6, {.exclude = {"third"}, .names = f.names()}),
            Names{"second"});
  const Tensor want = f(x)[0];
  const Tensor got =
      tn::compile(f, x, {.dtype = tn::i8, .exclude = {"second"}, .names = f.names()})(x)[0];
  EXPECT_LE(size_of(got - want), 0.02 * size_of(want));
  EXPECT_EQ(tn::check::error_of([&] { tn::to_exclude(f, x, 1e-6); }),
            "to_exclude: got a product by f32(50, 64) that has no name: need "
            "CompileOptions::names, such as nn::state_dict gives");
  EXPECT_EQ(tn::check::error_of([&] { tn::to_exclude(f, x, 0); }),
            "to_exclude: got most_error 0, need more than 0, such as 0.01");
}

// Weights are one byte each in the file, and used as they lie there.
TEST(EightBitPlans, ComputeTheSameBits) {
  const Spoiled f(tn::Generator(5));
  const Tensors x = {tn::Generator(6).normal({50, 40})};
  const tn::Executable made =
      tn::compile(f, x, {.dtype = tn::i8, .exclude = {"third"}, .names = f.names()});
  const tn::check::TemporaryFolder folder;
  made.save(folder / "model.plan");
  const tn::Executable loaded = tn::load_executable(folder / "model.plan");
  EXPECT_TRUE(tn::array_equal(loaded(x)[0], made(x)[0]));
  for (const tn::GroupCheck& check : tn::verify(loaded, x))
    EXPECT_TRUE(check.ok()) << check.operators;
}

}  // namespace

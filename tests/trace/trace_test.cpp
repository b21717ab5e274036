// Tracing: the graph computes what the eager run computes, and says clearly what cannot be traced.
#include "src/trace/trace.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;
using tn::Tensor;

namespace {

TEST(Trace, InterpretedGraphEqualsEagerBitForBit) {
  tn::Generator random(7);
  const Tensor weight = random.normal({5, 4}), x = random.normal({3, 4});
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y =
        tn::gelu(in[0](tn::all_of_axis, tn::slice(tn::none, tn::none, -1)) * 2.0 + weight(0));
    return {y.swapaxes(0, 1), tn::where(y > 0, y, -1)};
  };
  const tn::Graph graph = tn::trace(f, {x.type()});
  const auto expected = f({x}), got = tn::interpret(graph, {x});
  ASSERT_EQ(got.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(got[i].to_vector<float>(), expected[i].to_vector<float>());
}

TEST(Trace, ConstantsAreSharedAndNamed) {
  const Tensor weight = tn::ones({4});
  const tn::Graph graph =
      tn::trace([&](const auto& in) -> std::vector<Tensor> { return {in[0] * weight + weight}; },
                {{{2, 4}, tn::f32}}, {{"layer.3.weight", weight}});
  int constants = 0;
  for (const tn::Node& node : graph.nodes()) {
    if (node.kind != tn::NodeKind::constant) continue;
    ++constants;
    EXPECT_TRUE(node.constant.shares_storage(weight));
    EXPECT_EQ(node.where, "layer.3.weight");
  }
  EXPECT_EQ(constants, 1);
  EXPECT_EQ(graph[graph.outputs()[0]].where, "layer.3");
}

TEST(Trace, PrintsOneNodeALine) {
  const tn::Graph graph =
      tn::trace([](const auto& in) -> std::vector<Tensor> { return {tn::exp(in[0]).reshape({6})}; },
                {{{2, 3}, tn::f32}});
  std::ostringstream text;
  text << graph;
  EXPECT_EQ(text.str(),
            "%0 = input : f32(2, 3)\n%1 = exp(%0) : f32(2, 3)\n%2 = reshape(%1, shape=[6]) : "
            "f32(6,)\nreturn %2\n");
  EXPECT_NE(tn::to_dot(graph).find("v1 -> v2 [label=\"f32(2, 3)\"]"), std::string::npos);
}

TEST(Trace, HandlesAreReboundAndRowsWalked) {
  const tn::Graph graph = tn::trace(
      [](const auto& in) -> std::vector<Tensor> {
        Tensor total = in[0](0);
        for (const Tensor& row : in[0]) total += row;
        return {total};
      },
      {{{2, 3}, tn::f32}});
  std::ostringstream text;
  text << graph;
  const std::string lines = text.str();
  const std::size_t first = lines.find("add("), second = lines.find("add(", first + 1);
  EXPECT_NE(second, std::string::npos) << lines;
  EXPECT_EQ(lines.find("add(", second + 1), std::string::npos) << lines;
}

TEST(Trace, ValuesOfTracedTensorsAreRefused) {
  const tn::TensorType type{{2, 3}, tn::f32};
  const auto refused = [&](auto body) {
    return tn::check::error_of([&] {
      tn::trace(
          [&](const auto& in) -> std::vector<Tensor> {
            body(in[0]);
            return {in[0]};
          },
          {type});
    });
  };
  EXPECT_NE(refused([](const Tensor& x) { x.item(0, 0); }).find("traced tensor (f32(2, 3))"),
            std::string::npos);
  EXPECT_NE(refused([](const Tensor& x) { x(x > 0); }).find("traced tensor"), std::string::npos);
  const std::string unwritten =
      "has no elements to write into before the compiled function runs: make a new one with "
      "where(), concatenate() or pad(), or declare the target as Tensor, which += and = rebind";
  EXPECT_EQ(refused([](const Tensor& x) { x(0) = 1; }),
            "assignment: a traced tensor (f32(2, 3)) " + unwritten);
  EXPECT_EQ(refused([](const Tensor& x) {
              auto row = x(0);
              row += 1;
            }),
            "assignment: a traced tensor (f32(3,)) " + unwritten);
  EXPECT_EQ(refused([](const Tensor& x) {
              if (tn::all(x > 0)) return;
            }),
            "trace: a condition asks for the value of a traced tensor (bool()), which exists only "
            "when the compiled function runs: choose with where()");
  EXPECT_EQ(refused([](const Tensor& x) { tn::allclose(x, 1); }),
            "allclose: asks for the values of a traced tensor (f32(2, 3)), which exist only when "
            "the compiled function runs: use all(isclose(a, b))");
  EXPECT_EQ(refused([](const Tensor& x) {
              tn::array_equal(tn::ones({2, 3}), x);
            }),
            "array_equal: asks for the values of a traced tensor (f32(2, 3)), which exist only "
            "when the compiled function runs: use all(a == b)");
  EXPECT_NE(refused([](const Tensor& x) { std::ostringstream() << x; }).find("no error"),
            std::string::npos);
}

}  // namespace

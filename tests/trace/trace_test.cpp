// Tracing: the graph computes what the eager run computes, and says clearly what cannot be traced.
#include "src/trace/trace.h"

#include <gtest/gtest.h>

#include <sstream>

#include "src/core/storage.h"
#include "src/trace/derived.h"
#include "tensor/compile.h"
#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

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

// Large results alone, since small ones are computed as fast as they are recognised; and whoever
// writes into one has it to himself.
TEST(Trace, WhatIsComputedOfConstantsIsRememberedForOtherSizes) {
  const auto derived = std::make_shared<tn::DerivedConstants>();
  const Tensor w = tn::Generator(1).normal({64, 128});
  const auto function = [&](const Tensors& in) -> Tensors {
    const Tensor table = tn::matmul(w, tn::transpose(w));
    Tensor mask = table * 2;
    mask(0) = 0;
    return {in[0] + tn::sum(table, {0}), tn::matmul(in[0], mask)};
  };
  std::vector<tn::Graph> graphs;  // what is remembered is so while somebody has it
  for (const std::int64_t rows : {2, 3, 5}) {
    graphs.push_back(tn::trace(function, {{{rows, 64}, tn::f32}}, {}, derived));
    const tn::Graph& graph = graphs.back();
    int late = 0;
    for (const tn::Node& node : graph.nodes())
      if (node.kind == tn::NodeKind::constant)
        late += tn::detail::impl(node.constant).storage->late != nullptr;
    EXPECT_EQ(late > 0, rows != 2);
    const Tensor x = tn::Generator(2).normal({rows, 64});
    const Tensors want = function({x}), got = tn::interpret(graph, {x});
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>());
  }
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
  const auto asks = [](const std::string& where, const std::string& type) {
    return where + ": asks for the values of a traced tensor (" + type +
           "), which exist only when the compiled function runs: ";
  };
  const std::string leave_out =
      "compute with operators, where(), cond() or loop(), or leave it out of functions that are "
      "traced";
  const std::string f32 = "f32(2, 3)";
  const auto expect_asks = [&](const std::string& where, auto body) {
    EXPECT_EQ(refused(body), asks(where, f32) + leave_out);
  };
  expect_asks("item", [](const Tensor& x) { x.item(0, 0); });
  expect_asks("static_cast", [](const Tensor& x) { static_cast<void>(static_cast<float>(x)); });
  expect_asks("at", [](const Tensor& x) { x.at<float>(0, 0); });
  expect_asks("at", [](Tensor x) { x.at<float>(0, 0) = 1; });
  expect_asks("data", [](const Tensor& x) { x.data<float>(); });
  expect_asks("mutable_data", [](Tensor x) { x.mutable_data<float>(); });
  expect_asks("span", [](const Tensor& x) { x.span<float>(); });
  expect_asks("mutable_span", [](Tensor x) { x.mutable_span<float>(); });
  expect_asks("elements", [](const Tensor& x) { x.elements<float>(); });
  expect_asks("to_vector", [](const Tensor& x) { x.to_vector<int>(); });
  expect_asks("is_read_only", [](const Tensor& x) { x.is_read_only(); });
  expect_asks("shares_storage", [](const Tensor& x) { tn::ones({2}).shares_storage(x); });
  expect_asks("to_dlpack", [](const Tensor& x) { tn::to_dlpack(x); });
  expect_asks("forget_pages", [](const Tensor& x) { tn::forget_pages(x); });
  expect_asks("x.npy: the tensor", [](const Tensor& x) { tn::save_npy("x.npy", x); });
  expect_asks("x.npz: tensor \"a\"", [](const Tensor& x) { tn::save_npz("x.npz", {{"a", x}}); });
  expect_asks("x.safetensors: tensor \"a\"", [](const Tensor& x) {
    tn::save_safetensors("x.safetensors", {{"a", x}});
  });
  expect_asks("x.png: the image", [](const Tensor& x) { tn::save_png("x.png", x); });
  EXPECT_EQ(refused([](const Tensor& x) { x(x > 0); }),
            asks("index", "bool(2, 3)") +
                "how many elements a boolean mask picks depends on them: use where()");
  EXPECT_EQ(refused([](const Tensor& x) {
              tn::zeros({2, 3})(x > 0) = 1;
            }),
            asks("index", "bool(2, 3)") +
                "how many elements a boolean mask picks depends on them: use where()");
  const std::string take =
      "positions in a tensor are not traced as an index: use take() or take_along_axis()";
  EXPECT_EQ(refused([](const Tensor& x) { x(tn::array({1, 0})); }), asks("index", f32) + take);
  EXPECT_EQ(refused([](const Tensor& x) { tn::zeros({4})(x.astype(tn::i64)); }),
            asks("index", "i64(2, 3)") + take);
  const std::string make =
      "make a new one with where(), concatenate() or pad(), or declare the "
      "target as Tensor, which += and = rebind";
  EXPECT_EQ(refused([](const Tensor& x) {
              tn::zeros({2, 3})(0) = x(0);
            }),
            asks("assignment", "f32(3,)") + make);
  EXPECT_EQ(refused([](const Tensor& x) {
              tn::zeros({2, 3})(0) += x(0);
            }),
            asks("assignment", "f32(3,)") + make);
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

// A function that is compiled may be a part of another one; a plan may not.
TEST(Trace, CompiledFunctionsInsideAreTracedAlong) {
  const auto inner = tn::compile([](const Tensor& x) { return tn::relu(x) + 1; });
  const auto several = tn::compile([](const std::vector<Tensor>& in) { return in; });
  const auto outer = tn::compile([&](const Tensor& x) {
    return inner(x) * several({x, tn::array({2.0f})})[1] + inner(tn::array({0.0f}));
  });
  EXPECT_EQ(outer(tn::array({-1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{3, 7}));
  const tn::Executable plan = several.executable({tn::zeros({2}), tn::zeros({2})});
  const std::string text =
      "run: asks for the values of a traced tensor (f32(2,)), which exist only when the compiled "
      "function runs: an Executable is a compiled function inside the one that is traced. Call "
      "what compile(function) returns, which is traced along, or the function itself";
  const auto error_of = [&](auto body) {
    return tn::check::error_of([&] {
      tn::trace([&](const auto& in) { return body(in[0]); }, {{{2}, tn::f32}});
    });
  };
  EXPECT_EQ(error_of([&](const Tensor& x) { return plan({x, x}); }), text);
  EXPECT_EQ(error_of([&](const Tensor& x) {
              std::vector<Tensor> outputs = {x, x};
              plan.run({tn::zeros({2}), tn::zeros({2})}, outputs);
              return outputs;
            }),
            text);
  EXPECT_EQ(error_of([&](const Tensor& x) {
              plan.time({x, x}, 1);
              return std::vector<Tensor>{x};
            }),
            text);
}

// Neither of the two may take a step of its own stack a node.
TEST(Trace, LongFunctionsAreTracedAndLetGo) {
  constexpr int kSteps = 200'000;
  const Tensor one = tn::ones({1});
  const tn::Graph graph = tn::trace(
      [&](const auto& in) -> std::vector<Tensor> {
        Tensor y = in[0], eager = one;
        for (int i = 0; i < kSteps; ++i) y = y + one, eager = eager.reshape({1}) + one;
        return {y + eager};
      },
      {{{1}, tn::f32}});
  EXPECT_EQ(tn::interpret(graph, {one})[0].item(), 2 * (1 + kSteps));
}

}  // namespace

// What is cut to the part that is read, and what is not.
#include "src/trace/passes/trim.h"

#include <gtest/gtest.h>

#include <functional>

#include "src/trace/passes/clean.h"
#include "src/trace/passes/simplify.h"
#include "src/trace/trace.h"
#include "tensor/nn.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Op;
using tn::Shape;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

Graph clean(const Graph& graph) { return tn::eliminate_common_and_dead(tn::simplify(graph)); }

std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

// The elements that the operators of a kind compute, in all.
std::int64_t computed(const Graph& graph, Op op) {
  std::int64_t sum = 0;
  for (tn::ValueId id = 0; id < graph.size(); ++id)
    if (graph.is_op(id, op)) sum += elements(graph.type(id).shape);
  return sum;
}

struct TrimCase {
  std::string name;
  Op op;  // whose elements are counted
  std::int64_t before, after;
  std::function<Tensor(const Tensor&)> function;  // of x [2, 6, 4, 8]
};

Tensor row(const Tensor& x) { return x["::, 1"]; }

std::vector<TrimCase> cases() {
  using X = const Tensor&;
  tn::Generator random(tn::check::seed());
  const Tensor weight = random.normal({8, 5}), wide = random.normal({6, 1, 8}),
               key = random.normal({2, 6, 8, 3}), gain = random.normal({8});
  return {
      {"elementwise", Op::exp, 384, 64, [](X x) { return row(tn::exp(x)); }},
      {"stretched constants", Op::add, 384, 64, [=](X x) { return row(x + wide); }},
      {"stretched values", Op::exp, 48, 8, [](X x) { return row(x + tn::exp(x[":1, :, :1"])); }},
      {"one of two stretched", Op::multiply, 384, 64, [=](X x) { return row(x[":1"] * x); }},
      {"rows of a softmax", Op::softmax, 384, 64, [](X x) { return row(tn::softmax(x, -1)); }},
      {"its axis", Op::softmax, 384, 384, [](X x) { return row(tn::softmax(x, 1)); }},
      {"rows of a layer_norm", Op::layer_norm, 384, 64,
       [=](X x) { return row(tn::layer_norm(x, gain, gain)); }},
      {"its axis", Op::layer_norm, 384, 384,
       [=](X x) { return tn::layer_norm(x, gain, gain)["..., 3"]; }},
      {"rows of a product", Op::matmul, 240, 60,
       [=](X x) { return tn::matmul(x, weight)["..., 2:3, :"]; }},
      {"its columns, which would copy weights", Op::matmul, 240, 240,
       [=](X x) { return tn::matmul(x, weight)["..., 2:3"]; }},
      {"stacks of products", Op::matmul, 144, 24, [=](X x) { return row(tn::matmul(x, key)); }},
      {"its depth", Op::exp, 384, 384, [=](X x) { return tn::matmul(tn::exp(x), weight); }},
      {"through a transpose", Op::exp, 384, 64,
       [](X x) {
         return tn::exp(x).transpose({3, 1, 2, 0})["::, 5"];
       }},
      {"through a reshape", Op::exp, 384, 64,
       [](X x) {
         return tn::exp(x).reshape({2, 6, 32})["::, 4"];
       }},
      {"not through one that mixes the axis", Op::exp, 384, 384,
       [](X x) {
         return tn::exp(x).reshape({2, 3, 64})["::, 1"];
       }},
      {"through a concatenation", Op::exp, 768, 128,
       [](X x) {
         return row(tn::concatenate({tn::exp(x), tn::exp(-x)}, 2));
       }},
      {"not along it", Op::exp, 384, 384,
       [](X x) {
         return row(tn::concatenate({x, tn::exp(x)}, 1));
       }},
      {"through a broadcast", Op::exp, 48, 8,
       [](X x) {
         return row(tn::broadcast_to(tn::exp(x[":1, :, :1"]), {2, 6, 4, 8}));
       }},
      {"backwards, in steps", Op::exp, 384, 192, [](X x) { return tn::exp(x)["::, 4:0:-2"]; }},
      {"a slice of a slice", Op::exp, 384, 64,
       [](X x) { return tn::exp(x["::, ::-1"])["::, 1:3"]["::, 1"]; }},
      {"all that two readers need", Op::exp, 384, 192,
       [](X x) { return tn::exp(x)["::, 1:2"] + tn::exp(x)["::, 3:4"]; }},
      {"more than half", Op::exp, 384, 384, [](X x) { return tn::exp(x)["::, 1:5"]; }},
      {"an operator without a rule", Op::exp, 384, 384,
       [](X x) { return row(tn::cumsum(tn::exp(x), 1)); }},
  };
}

TEST(Trim, ComputesWhatIsRead) {
  for (const TrimCase& c : cases()) {
    SCOPED_TRACE(c.name);
    const Tensor x = tn::Generator(tn::check::seed()).normal({2, 6, 4, 8});
    const Graph before = clean(
        tn::trace([&](const Tensors& in) -> Tensors { return {c.function(in[0])}; }, {x.type()}));
    const Graph after = clean(tn::trim(before));
    EXPECT_EQ(computed(before, c.op), c.before) << before;
    EXPECT_EQ(computed(after, c.op), c.after) << after;
    // Products may add up in another order.
    tn::expect_same(before, after, {x}, c.op == Op::matmul ? 8 : 0);
  }
}

// The last layer of a ViT and its classifier, which reads the first token.
struct Layer {
  tn::nn::MultiheadAttention attention = tn::nn::MultiheadAttention::sized(8, 2, true);
  tn::nn::LayerNorm norm = tn::nn::LayerNorm::sized(8, 1e-6);
  tn::nn::Linear up = tn::nn::Linear::sized(8, 32), down = tn::nn::Linear::sized(32, 8);

  void members(auto&& visit) {
    visit("attention", attention), visit("norm", norm), visit("up", up), visit("down", down);
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor y = x + attention(x, x, x);
    return y + down(tn::gelu(up(norm(y))));
  }
};

TEST(Trim, TheClassTokenIsAllThatFollowsTheLastKeysAndValues) {
  Layer layer;
  tn::nn::randomize(layer, tn::check::seed());
  const Tensor x = tn::Generator(tn::check::seed()).normal({3, 10, 8});
  const auto model = [&](const Tensors& in) -> Tensors { return {layer(in[0])["::, 0"]}; };
  const Graph before = clean(tn::trace(model, {x.type()})), after = clean(tn::trim(before));
  // Queries, keys and values stay one kernel, of all ten tokens; scores and what is attended to,
  // the output's product, and those of the MLP are of one.
  const std::int64_t tokens = 3 * 10, one = 3;
  EXPECT_EQ(computed(before, Op::matmul), tokens * (3 * 8 + 2 * 10 + 8 + 8 + 32 + 8));
  EXPECT_EQ(computed(after, Op::matmul), tokens * 3 * 8 + one * (2 * 10 + 8 + 8 + 32 + 8));
  EXPECT_EQ(computed(after, Op::layer_norm), one * 8);
  EXPECT_EQ(computed(after, Op::gelu), one * 32);
  tn::expect_same(before, after, {x}, 8);
}

TEST(Trim, WhatIsReturnedIsWhole) {
  const Tensor x = tn::Generator(tn::check::seed()).normal({2, 6});
  const Graph before = tn::trace(
      [](const Tensors& in) -> Tensors {
        const Tensor y = tn::exp(in[0]);
        return {y, y["::, 0"] + 1};
      },
      {x.type()});
  const Graph after = clean(tn::trim(before));
  EXPECT_EQ(computed(after, Op::exp), 12);
  EXPECT_EQ(computed(after, Op::add), 2);
  tn::expect_same(before, after, {x}, 0);
}

TEST(Trim, NothingOfNothing) {
  const Graph before = tn::trace(
      [](const Tensors& in) -> Tensors {
        return {tn::exp(in[0])["::, 0:0"], tn::exp(in[1])[":1"], tn::sum(in[1])};
      },
      {{{2, 6}, tn::f32}, {{4, 0}, tn::f32}});
  const Graph after = tn::trim(before);
  tn::expect_same(before, after, {tn::ones({2, 6}), tn::ones({4, 0})}, 0);
}

}  // namespace

// Parallel products: which are found, and what they are lowered to.
#include "src/trace/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/fold_scale.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/near.h"

namespace tn = tensor;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

struct Linear {
  Tensor weight, bias;
  Tensor operator()(const Tensor& x) const { return tn::linear(x, weight, bias); }
};

tn::LaidOutGraph laid_out(const tn::TensorFunction& f, const Tensors& inputs,
                          const tn::ConstantNames& names = {}) {
  std::vector<tn::TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  return tn::lay_out(tn::eliminate_common_and_dead(tn::fold_constants(tn::trace(f, types, names))));
}

std::vector<tn::Parallel> found(const tn::LaidOutGraph& laid) {
  return tn::parallel_products(laid.graph, tn::wiring(laid.graph));
}

// Costs of 10 microseconds for a product with any epilogue and of one for any other operator:
// whatever can be merged is.
tn::GroupCost ten_a_product(const tn::LaidOutGraph& laid, const tn::Group& group) {
  const tn::Graph& graph = laid.graph;
  int products = 0;
  for (const tn::ValueId id : group.nodes) products += graph.is_op(id, tn::Op::matmul);
  const bool is_chain =
      group.writes.size() == 1 && products == 1 && graph.is_op(group.nodes.front(), tn::Op::matmul);
  if (group.nodes.size() > 1 && !is_chain) return {};
  return {0, products > 0 ? 10.0 : 1.0};
}

// The same, but whatever makes a product's left operand costs nothing in the product's group.
tn::GroupCost leads_are_free(const tn::LaidOutGraph& laid, const tn::Group& group) {
  const auto product = std::find_if(group.nodes.begin(), group.nodes.end(), [&](tn::ValueId id) {
    return laid.graph.is_op(id, tn::Op::matmul);
  });
  if (product == group.nodes.end()) return ten_a_product(laid, group);
  tn::Group rest = group;
  rest.nodes.assign(product, group.nodes.end());
  return ten_a_product(laid, rest);
}

// The plan with all that can be merged, before and after its lowering: equal costs, an equal
// result, no copies, and as many products as are wanted.
tn::LaidOutGraph expect_merged(const tn::LaidOutGraph& laid, const Tensors& inputs, int products,
                               double ulps, const tn::CostFn& cost = ten_a_product) {
  const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), cost);
  const auto [merged, after] = tn::merge_parallel(laid, plan);
  tn::verify(merged.graph, "test");
  EXPECT_EQ(after.groups.size(), plan.groups.size());
  EXPECT_EQ(after.microseconds, plan.microseconds);
  int count = 0;
  for (tn::ValueId id = 0; id < merged.graph.size(); ++id) {
    count += merged.graph.is_op(id, tn::Op::matmul);
    EXPECT_FALSE(merged.graph.is_op(id, tn::Op::copy));
  }
  EXPECT_EQ(count, products) << merged.graph;
  for (const tn::Group& group : after.groups)
    EXPECT_EQ(cost(merged, group).family, 0) << merged.graph;
  tn::check::expect_near(tn::interpret(merged.graph, inputs), tn::interpret(laid.graph, inputs),
                         ulps);
  return merged;
}

TEST(Parallel, QueriesKeysAndValuesBecomeOneProduct) {
  tn::Generator random(31);
  const std::int64_t width = 12, heads = 3;
  Linear parts[3];
  for (Linear& part : parts) part = {random.normal({width, width}), random.normal({width})};
  const auto f = [&](const Tensors& in) -> Tensors {
    const auto split = [&](const Tensor& x) {
      return x.reshape({2, 5, heads, width / heads}).swapaxes(1, 2);
    };
    const Tensor x = tn::exp(in[0]);
    const Tensor q = split(parts[0](x)), k = split(parts[1](x)), v = split(parts[2](x));
    const Tensor y = tn::scaled_dot_product_attention(q, k, v);
    return {y.swapaxes(1, 2).reshape({2, 5, width})};
  };
  const Tensors inputs = {random.normal({2, 5, width})};
  const tn::LaidOutGraph laid = laid_out(f, inputs,
                                         {{"block.query.weight", parts[0].weight},
                                          {"block.key.weight", parts[1].weight},
                                          {"block.value.weight", parts[2].weight}});
  const auto sets = found(laid);
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].size(), 3u);
  EXPECT_EQ(sets[0][0].size(), 2u);  // matmul, add
  // One wider product: the same sums of 12 terms, perhaps in another order.
  const tn::LaidOutGraph merged = expect_merged(laid, inputs, 3, 64);
  bool is_named = false;
  for (const tn::Node& node : merged.graph.nodes())
    is_named |= node.op == tn::Op::matmul && node.where == "block.{query, key, value}";
  EXPECT_TRUE(is_named) << merged.graph;
}

TEST(Parallel, EqualBeginningsOfUnequalChains) {
  tn::Generator random(32);
  const Linear a{random.normal({7, 4}), random.normal({7})},
      b{random.normal({5, 4}), random.normal({5})}, c{random.normal({3, 4}), random.normal({3})};
  // a and b agree in three operators, all of them in two. sum ends the chains.
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::sum(tn::relu(a(in[0]))), tn::sum(tn::relu(b(in[0])) * 0.5), tn::sum(c(in[0]))};
  };
  const Tensors inputs = {random.normal({6, 4})};
  const tn::LaidOutGraph laid = laid_out(f, inputs);
  const auto sets = found(laid);
  ASSERT_EQ(sets.size(), 2u) << laid.graph;
  EXPECT_EQ(sets[0].size(), 3u);
  EXPECT_EQ(sets[0][0].size(), 2u);
  EXPECT_EQ(sets[1].size(), 2u);
  EXPECT_EQ(sets[1][0].size(), 3u);
  expect_merged(laid, inputs, 1, 64);
}

// A block of a transformer up to attention; its input is read by the residual sum as well.
struct Block {
  Linear parts[3];
  Tensor gamma, beta, before = {};
  Tensors operator()(const Tensors& in) const {
    const std::int64_t width = gamma.size(), heads = 3;
    const auto split = [&](const Tensor& x) {
      return x.reshape({2, 5, heads, width / heads}).swapaxes(1, 2);
    };
    const Tensor x = before.defined() ? tn::matmul(in[0], before) : tn::exp(in[0]);
    // A view among the lead.
    const Tensor normal =
        tn::layer_norm(x, gamma, beta).reshape({10, width}).reshape({2, 5, width});
    const Tensor y = tn::scaled_dot_product_attention(
        split(parts[0](normal)), split(parts[1](normal)), split(parts[2](normal)));
    return {x + y.swapaxes(1, 2).reshape({2, 5, width})};
  }
};

Block random_block(tn::Generator& random, std::int64_t width) {
  Block block{{}, random.normal({width}, 1, 0.2f), random.normal({width})};
  for (Linear& part : block.parts) part = {random.normal({width, width}), random.normal({width})};
  return block;
}

std::vector<tn::Op> operators_of(const tn::Graph& graph, const tn::Group& group) {
  std::vector<tn::Op> result;
  for (const tn::ValueId id : group.nodes) result.push_back(graph[id].op);
  return result;
}

TEST(Parallel, WhatMakesTheirOperandJoinsTheProducts) {
  tn::Generator random(36);
  const Block block = random_block(random, 12);
  const Tensors inputs = {random.normal({2, 5, 12})};
  const tn::LaidOutGraph laid = laid_out(block, inputs);
  // exp, the wide product, and the two products of attention with what stands beside them.
  const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), leads_are_free);
  EXPECT_EQ(plan.microseconds, 1 + 30) << laid.graph;
  const auto [merged, after] = tn::merge_parallel(laid, plan);
  int found = 0;
  for (const tn::Group& group : after.groups) {
    if (!merged.graph.is_op(group.nodes.front(), tn::Op::layer_norm)) continue;
    ++found;
    EXPECT_EQ(operators_of(merged.graph, group),
              (std::vector{tn::Op::layer_norm, tn::Op::matmul, tn::Op::add}));
    EXPECT_EQ(group.reads.size(), 5u);  // x, gamma, beta, weight, bias
    EXPECT_EQ(group.writes, std::vector{group.nodes.back()});
  }
  EXPECT_EQ(found, 1) << merged.graph;
  expect_merged(laid, inputs, 3, 256, leads_are_free);  // sums of 12 terms, and a softmax of them
}

// What the compiler makes of it for a GPU: casts on both sides of the layer_norm.
TEST(Parallel, NormsBetweenCastsJoinTheProducts) {
  tn::Generator random(37);
  constexpr std::int64_t kWidth = 192;
  Block block = random_block(random, kWidth);
  block.before = random.normal({kWidth, kWidth});
  for (Linear& part : block.parts) part.weight = part.weight / std::sqrt(double{kWidth});
  const Tensors inputs = {random.normal({2, 5, kWidth})};
  const tn::Graph traced = tn::fold_scale(tn::fold_constants(tn::trace(block, {inputs[0].type()})));
  const tn::LaidOutGraph laid = tn::lay_out(
      tn::eliminate_common_and_dead(tn::cast_norms(tn::cast_products(traced, tn::f16), tn::f16)));
  const auto [merged, after] =
      tn::merge_parallel(laid, tn::fuse(tn::propose_parallel(laid), leads_are_free));
  int found = 0;
  for (const tn::Group& group : after.groups) {
    if (group.nodes.size() == 1 || !merged.graph.is_op(group.nodes[1], tn::Op::layer_norm_by_sums))
      continue;
    ++found;
    EXPECT_EQ(operators_of(merged.graph, group),
              (std::vector{tn::Op::astype, tn::Op::layer_norm_by_sums, tn::Op::astype,
                           tn::Op::matmul, tn::Op::astype, tn::Op::add, tn::Op::astype}));
    EXPECT_EQ(merged.graph.type(group.reads[0]).dtype, tn::f16);
    EXPECT_TRUE(merged.graph.is_op(group.reads[3], tn::Op::row_sums)) << "after gamma and beta";
    EXPECT_EQ(merged.graph.type(group.writes[0]).shape, (tn::Shape{2, 5, 3 * kWidth}));
  }
  EXPECT_EQ(found, 1) << merged.graph;
  // The wide product's sums may round to f16 the other way: an f16 step of 0x1p13 steps of f32 at
  // each of queries, keys, values, scores and results.
  expect_merged(laid, inputs, 4, 8 * 0x1p13, leads_are_free);
}

TEST(Parallel, OnlyWhatTheseProductsAloneReadLeadsThem) {
  tn::Generator random(38);
  const Tensor a = random.normal({6, 4}), b = random.normal({6, 5}), c = random.normal({6});
  // The operators of the lead of the products by a and b.
  const auto lead = [&](const tn::TensorFunction& f) {
    const tn::LaidOutGraph laid = laid_out(f, {random.normal({3, 6}), random.normal({3, 6})});
    const auto sets = found(laid);
    EXPECT_EQ(sets.size(), 1u) << laid.graph;
    std::vector<tn::Op> result;
    for (const tn::ValueId id : tn::lead_of(laid.graph, tn::wiring(laid.graph), sets[0]))
      result.push_back(laid.graph[id].op);
    return result;
  };
  const auto both = [&](const Tensor& x) {
    return tn::sum(tn::matmul(x, a)) + tn::sum(tn::matmul(x, b));
  };
  using Ops = std::vector<tn::Op>;
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors { return {both(in[0])}; }), Ops());
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              return {both(tn::exp(tn::layer_norm(in[0] + c, c, c)))};
            }),
            (Ops{tn::Op::add, tn::Op::layer_norm, tn::Op::exp}));
  // At most three, and none that is computed from two values or by a product.
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              return {both(tn::exp(tn::abs(tn::exp(tn::abs(in[0])))))};
            }),
            (Ops{tn::Op::exp, tn::Op::abs, tn::Op::exp}));
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors { return {both(tn::exp(in[0] + in[1]))}; }),
            Ops{tn::Op::exp});
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              return {both(tn::abs(tn::matmul(in[0], tn::ones({6, 6}))))};
            }),
            Ops{tn::Op::abs});
  // Nor what somebody else reads, or the caller gets.
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              const Tensor x = tn::exp(in[0]);
              return {both(tn::abs(x)) + tn::sum(x)};
            }),
            Ops{tn::Op::abs});
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              const Tensor x = tn::exp(in[0]);
              return {both(x) + tn::sum(tn::matmul(x.reshape({18}), tn::ones({18})))};
            }),
            Ops());
  EXPECT_EQ(lead([&](const Tensors& in) -> Tensors {
              const Tensor x = tn::exp(in[0]);
              return {both(tn::abs(x)), x.transpose()};
            }),
            Ops{tn::Op::abs});
}

TEST(Parallel, WholeNumbersStayExact) {
  tn::Generator random(33);
  const auto whole = [&](const tn::Shape& shape) {
    return random.randint(-4, 5, shape).astype(tn::f32);
  };
  const Tensor w[] = {whole({8, 3}), whole({8, 1}), whole({8, 6})};
  const Tensor v[] = {whole({3}), whole({1}), whole({6})};
  const auto f = [&](const Tensors& in) -> Tensors {
    Tensors results;
    for (std::size_t i = 0; i < 3; ++i)
      results.push_back(tn::sum(tn::maximum((tn::matmul(in[0], w[i]) - v[i]) * 2.0, -3.0), 0));
    return results;
  };
  const Tensors inputs = {whole({4, 2, 8})};
  const tn::LaidOutGraph laid = laid_out(f, inputs);
  ASSERT_EQ(found(laid).size(), 1u) << laid.graph;
  expect_merged(laid, inputs, 1, 0);
}

TEST(Parallel, WhatCannotLieSideBySideStaysApart) {
  tn::Generator random(34);
  const Tensor a = random.normal({4, 6}), b = random.normal({4, 6});
  const Tensors inputs = {random.normal({5, 4}), random.normal({6, 4})};
  const auto sets = [&](const tn::TensorFunction& f) { return found(laid_out(f, inputs)).size(); };
  const auto both = [&](auto g) {
    return [&, g](const Tensors& in) -> Tensors {
      return {g(tn::matmul(in[0], a)), g(tn::matmul(in[0], b))};
    };
  };
  // The caller's outputs are dense.
  EXPECT_EQ(sets(both([](const Tensor& x) { return x; })), 0u);
  EXPECT_EQ(sets(both([](const Tensor& x) { return x.transpose(); })), 0u);
  // Rows that lie apart cannot be read as one.
  EXPECT_EQ(sets(both([](const Tensor& x) { return tn::sum(x.reshape({30})); })), 0u);
  EXPECT_EQ(sets(both([](const Tensor& x) { return tn::sum(x.reshape({5, 2, 3})); })), 1u);
  // One product that feeds the other, other left operands, right operands that are computed.
  EXPECT_EQ(sets([&](const Tensors& in) -> Tensors {
              const Tensor y = tn::matmul(in[0], a);
              return {tn::sum(tn::matmul(y, a.transpose())) + tn::sum(y)};
            }),
            0u);
  EXPECT_EQ(sets([&](const Tensors& in) -> Tensors {
              return {tn::sum(tn::matmul(in[0], a)) + tn::sum(tn::matmul(in[1], b))};
            }),
            0u);
  EXPECT_EQ(sets([&](const Tensors& in) -> Tensors {
              const Tensor right = in[1].transpose();
              return {tn::sum(tn::matmul(in[0], right)) + tn::sum(tn::matmul(in[0], right * 2.0))};
            }),
            0u);
}

// The groups were chosen for how values lie: an image whose reshape needs a copy keeps the one it
// has, and its kernel.
TEST(Parallel, EverythingElseStaysAsItWasLaidOut) {
  tn::Generator random(12);
  const Linear a{random.normal({8, 16}), random.normal({8})},
      b{random.normal({8, 16}), random.normal({8})};
  const tn::TensorFunction f = [&](const Tensors& in) -> Tensors {
    const Tensor wide = tn::interpolate(in[1], {6, 10});
    return {tn::exp(a(in[0])) * tn::exp(b(in[0])), tn::exp(wide.reshape({3, 60})),
            tn::interpolate(tn::exp(wide.reshape({1, 6, 3, 10})), {4, 5})};
  };
  const auto laid = laid_out(f, {random.normal({5, 16}), random.normal({1, 3, 3, 5})});
  const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), ten_a_product);
  const auto [merged, after] = tn::merge_parallel(laid, plan);
  const auto operators = [](const tn::Graph& graph, const tn::FusionPlan& p) {
    std::vector<std::vector<tn::Op>> result;
    for (const tn::Group& group : p.groups) {
      result.emplace_back();
      for (const tn::ValueId id : group.nodes) {
        EXPECT_TRUE(tn::is_compute(graph, id));
        result.back().push_back(graph[id].op);
      }
    }
    return result;
  };
  const auto before = operators(laid.graph, plan), now = operators(merged.graph, after);
  ASSERT_EQ(before.size(), now.size());
  int copies = 0, narrower = 0;
  for (std::size_t g = 0; g < now.size(); ++g) {
    copies += now[g] == std::vector{tn::Op::copy};
    if (now[g] == before[g]) continue;
    ++narrower;
    const std::vector chain = {tn::Op::matmul, tn::Op::add, tn::Op::exp};
    std::vector both = chain;
    both.insert(both.end(), chain.begin(), chain.end());
    EXPECT_EQ(before[g], both);
    EXPECT_EQ(now[g], chain);
  }
  EXPECT_GE(copies, 1);
  EXPECT_EQ(narrower, 1);
}

TEST(Parallel, AMergedGroupMustSaveEnough) {
  tn::Generator random(35);
  const Tensor a = random.normal({4, 6}), b = random.normal({4, 6});
  const auto f = [&](const Tensors& in) -> Tensors {
    return {tn::sum(tn::matmul(in[0], a)), tn::sum(tn::matmul(in[0], b))};
  };
  const tn::LaidOutGraph laid = laid_out(f, {random.normal({5, 4})});
  // A product of 6 columns takes 100 us, one of 12 columns what is given.
  const auto merges = [&](double wide) {
    const tn::CostFn cost = [&](const tn::LaidOutGraph& of,
                                const tn::Group& group) -> tn::GroupCost {
      if (group.nodes.size() > 1) return {};
      const tn::Shape& shape = of.graph.type(group.nodes[0]).shape;  // a sum's has no axes
      return {0, shape.rank() > 0 && shape.back() == 12 ? wide : 100};
    };
    const tn::FusionPlan plan = tn::fuse(tn::propose_parallel(laid), cost, {.merging = 0.02});
    const double saved = tn::no_fusion(laid, cost).microseconds - plan.microseconds;
    EXPECT_NEAR(saved, plan.groups.size() == 3 ? 200 - wide : 0, 1e-9);
    return plan.groups.size() == 3;
  };
  EXPECT_TRUE(merges(150));
  EXPECT_TRUE(merges(195));
  EXPECT_FALSE(merges(197));
  EXPECT_FALSE(merges(210));
}

}  // namespace

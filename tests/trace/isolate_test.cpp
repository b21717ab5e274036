// Groups by themselves: what they compute stays, and their texts are those of any model.
#include "src/trace/isolate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "src/trace/fuse.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

LaidOutGraph laid_out(const TensorFunction& f, const std::vector<TensorType>& types) {
  return lay_out(eliminate_common_and_dead(fold_constants(trace(f, types))));
}

Group group_of(const Graph& graph, std::initializer_list<Op> ops) {
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (is_compute(graph, id) && std::count(ops.begin(), ops.end(), graph[id].op))
      nodes.push_back(id);
  return make_group(graph, wiring(graph), nodes);
}

// The text of all operators of a function as one group.
std::string text_of(const TensorFunction& f, const std::vector<TensorType>& types) {
  const LaidOutGraph laid = laid_out(f, types);
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < laid.graph.size(); ++id)
    if (is_compute(laid.graph, id)) nodes.push_back(id);
  return problem_text(laid.graph, make_group(laid.graph, wiring(laid.graph), nodes));
}

Tensor weight(std::int64_t rows, std::int64_t columns, int seed) {
  return sin(arange(rows * columns).astype(f32) * 0.37 + seed).reshape({rows, columns});
}

// Heads from slices of one value, as attention reads queries and keys.
Tensors heads(const Tensors& in) {
  const Tensor wide = matmul(in[0], weight(8, 16, 1));
  const auto head = [&](int i) {
    return transpose(reshape(wide(ellipsis, slice(8 * i, 8 * i + 8)), {1, 5, 2, 4}), {0, 2, 1, 3});
  };
  return {softmax(matmul(head(0), swapaxes(head(1), -1, -2)) * 0.5, -1)};
}

TEST(Isolate, AGroupComputesTheSameByItself) {
  const LaidOutGraph laid = laid_out(heads, {{{1, 5, 8}, f32}});
  const Graph& graph = laid.graph;
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < graph.size(); ++id)
    if (is_compute(graph, id)) nodes.push_back(id);
  nodes.erase(nodes.begin());  // the wide product
  Group group = make_group(graph, wiring(graph), nodes);
  group.family = 3, group.microseconds = 2.5, group.schedule = "some way=1";
  const Isolated alone = isolate(laid, group);
  verify(alone.laid.graph, "isolated");
  EXPECT_EQ(alone.group.family, 3);
  EXPECT_EQ(alone.group.microseconds, 2.5);
  EXPECT_EQ(alone.group.schedule, "some way=1");
  ASSERT_EQ(alone.group.reads.size(), group.reads.size());
  ASSERT_EQ(alone.group.writes.size(), group.writes.size());
  ASSERT_EQ(alone.laid.layouts.size(), static_cast<std::size_t>(alone.laid.graph.size()));
  const auto at = [](const LaidOutGraph& g, ValueId id) {
    return g.layouts[static_cast<std::size_t>(id)];
  };
  std::set<std::int64_t> offsets;
  for (std::size_t i = 0; i < group.reads.size(); ++i) {
    EXPECT_EQ(alone.group.reads[i], static_cast<ValueId>(i)) << "reads come first, in order";
    EXPECT_EQ(alone.laid.graph.is_constant(alone.group.reads[i]),
              graph.is_constant(group.reads[i]));
    const Layout before = at(laid, group.reads[i]), after = at(alone.laid, alone.group.reads[i]);
    EXPECT_EQ(before.shape, after.shape);
    EXPECT_EQ(before.strides, after.strides);
    EXPECT_EQ(before.offset, after.offset);
    offsets.insert(after.offset);
  }
  EXPECT_EQ(offsets, (std::set<std::int64_t>{0, 8})) << "the second head is a slice";

  const Tensor x = weight(5, 8, 3).reshape({1, 5, 8});
  Graph whole = graph;
  std::vector<ValueId> wanted = group.reads;
  wanted.insert(wanted.end(), group.writes.begin(), group.writes.end());
  whole.set_outputs(wanted);
  const Tensors values = interpret(whole, {x});
  Tensors inputs;
  for (std::size_t i = 0; i < group.reads.size(); ++i)
    if (!graph.is_constant(group.reads[i])) inputs.push_back(values[i]);
  const Tensors results = interpret(alone.laid.graph, inputs);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(all(results[0] == values.back()).item<bool>());
}

// A group that begins with a normalisation of a narrow value and ends with a merged product.
TEST(Isolate, NormsOfMergedProducts) {
  const auto function = [](const Tensors& in) -> Tensors {
    const Tensor x =
        layer_norm(matmul(in[0], weight(8, 64, 3)), full({64}, 1.5, f32), full({64}, 0.25, f32));
    return {sum(matmul(x, weight(64, 4, 1))), sum(matmul(x, weight(64, 6, 2)))};
  };
  const LaidOutGraph laid = lay_out(eliminate_common_and_dead(
      cast_norms(cast_products(fold_constants(trace(function, {{{5, 8}, f32}})), f16), f16)));
  const CostFn cost = [](const LaidOutGraph& of, const Group& group) -> GroupCost {
    std::map<Op, int> count;
    for (const ValueId id : group.nodes) ++count[of.graph[id].op];
    const bool is_normalized_product =
        count[Op::layer_norm_by_sums] == 1 && count[Op::matmul] == 1 && count[Op::row_sums] == 0;
    if (group.nodes.size() > 1 && (!is_normalized_product || group.writes.size() > 1)) return {};
    return {0, 10.0};
  };
  const auto [merged, plan] = merge_parallel(laid, fuse(propose_parallel(laid), cost));
  const auto group = std::find_if(plan.groups.begin(), plan.groups.end(),
                                  [](const Group& g) { return g.nodes.size() > 1; });
  ASSERT_NE(group, plan.groups.end());
  EXPECT_EQ(problem_text(merged.graph, *group),
            "%0 = f16(5, 64); %1 = astype(%0, dtype=\"f32\"); %2 = constant f32(64,); "
            "%3 = constant f32(64,); %4 = f32(1, 5, 2); "
            "%5 = layer_norm_by_sums(%1, %2, %3, %4, eps=1e-05); %6 = astype(%5, dtype=\"f16\"); "
            "%7 = constant f16(64, 10); %8 = matmul(%6, %7); %9 = astype(%8, dtype=\"f32\"); "
            "return %9");
  // The text of the group as it was costed is the same.
  for (const Group& apart : fuse(propose_parallel(laid), cost).groups)
    if (const ParallelRun run = run_of(laid.graph, apart); !run.empty()) {
      const Isolated alone = merged_alone(laid, run);
      EXPECT_EQ(problem_text(alone.laid.graph, alone.group), problem_text(merged.graph, *group));
    }
  const Isolated alone = isolate(merged, *group);
  verify(alone.laid.graph, "isolated");
  EXPECT_EQ(alone.group.nodes.size(), group->nodes.size());
  ASSERT_EQ(alone.laid.graph.inputs().size(), 2u) << "the rows and their sums";
  Graph whole = merged.graph;
  whole.set_outputs({group->reads[0], group->reads[3], group->writes[0]});
  const Tensors values = interpret(whole, {weight(5, 8, 3)});
  EXPECT_TRUE(
      all(interpret(alone.laid.graph, {values[0], values[1]})[0] == values[2]).item<bool>());
}

TEST(Isolate, ConstantsStayConstantsBehindViews) {
  const LaidOutGraph laid = laid_out(
      [](const Tensors& in) {
        return Tensors{in[0] + broadcast_to(full({}, 2.0, f32), {3, 4})};
      },
      {{{3, 4}, f32}});
  const Isolated alone = isolate(laid, group_of(laid.graph, {Op::add}));
  EXPECT_EQ(alone.laid.graph.inputs().size(), 1u);
  int constants = 0;
  for (const Node& node : alone.laid.graph.nodes()) constants += node.kind == NodeKind::constant;
  EXPECT_EQ(constants, 1);
}

TEST(ProblemText, SaysWhatAGroupComputes) {
  EXPECT_EQ(text_of([](const Tensors& in) { return Tensors{relu(matmul(in[0], weight(8, 6, 1)))}; },
                    {{{5, 8}, f32}}),
            "%0 = f32(5, 8); %1 = constant f32(8, 6); %2 = matmul(%0, %1); %3 = relu(%2); "
            "return %3");
  EXPECT_EQ(text_of(
                [](const Tensors& in) {
                  return Tensors{in[0] * in[0], -in[0]};
                },
                {{{4}, f16}}),
            "%0 = f16(4,); %1 = multiply(%0, %0); %2 = negative(%0); return %1 %2");
}

// A product in a model of other operators, at another place, with other numbers.
TEST(ProblemText, IsTheSameInAnyModel) {
  const auto layer = [](const Tensor& x, int seed) {
    return gelu(matmul(x, weight(8, 8, seed)) + weight(1, 8, seed + 1));
  };
  const LaidOutGraph first =
      laid_out([&](const Tensors& in) { return Tensors{layer(in[0], 1)}; }, {{{5, 8}, f32}});
  const LaidOutGraph second = laid_out(
      [&](const Tensors& in) {
        return Tensors{softmax(layer(layer(exp(in[0]), 3), 5), -1), sum(in[0])};
      },
      {{{5, 8}, f32}});
  const std::string wanted =
      problem_text(first.graph, group_of(first.graph, {Op::matmul, Op::add, Op::gelu}));
  int found = 0;
  const Wiring wires = wiring(second.graph);
  const auto reader = [&](ValueId id) { return wires.readers[static_cast<std::size_t>(id)].at(0); };
  for (ValueId id = 0; id < second.graph.size(); ++id)
    if (second.graph.is_op(id, Op::matmul)) {
      const ValueId sum = reader(id);
      EXPECT_EQ(problem_text(second.graph, make_group(second.graph, wires, {id, sum, reader(sum)})),
                wanted);
      ++found;
    }
  EXPECT_EQ(found, 2);
  // By itself, too.
  const Isolated alone = isolate(first, group_of(first.graph, {Op::matmul, Op::add, Op::gelu}));
  EXPECT_EQ(problem_text(alone.laid.graph, alone.group), wanted);
}

TEST(ProblemText, DoesNotDependOnTheOrderOfTheProgram) {
  const auto a = [](const Tensors& in) {
    const Tensor left = exp(in[0]), right = relu(in[1]);
    return Tensors{left - right};
  };
  const auto b = [](const Tensors& in) {
    const Tensor right = relu(in[1]), left = exp(in[0]);
    return Tensors{left - right};
  };
  const std::vector<TensorType> types = {{{5}, f32}, {{5}, f32}};
  EXPECT_EQ(text_of(a, types), text_of(b, types));
}

TEST(ProblemText, WhatDiffersDiffers) {
  const Tensor w = weight(8, 8, 1);
  const auto product = [&](const Tensors& in) { return Tensors{matmul(in[0], w)}; };
  const auto of_two = [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; };
  const auto turned = [](const Tensors& in) {
    return Tensors{matmul(in[0], swapaxes(in[1], 0, 1))};
  };
  const auto axis = [](int i) {
    return [=](const Tensors& in) { return Tensors{softmax(in[0], i)}; };
  };
  const std::vector<TensorType> square = {{{8, 8}, f32}}, two = {{{8, 8}, f32}, {{8, 8}, f32}};
  std::set<std::string> texts;
  int count = 0;
  const auto add = [&](const std::string& text) { texts.insert(text), ++count; };
  add(text_of(product, square));
  add(text_of(product, {{{7, 8}, f32}}));
  add(text_of(of_two, two));
  add(text_of(turned, two));
  add(text_of(of_two, {{{8, 8}, f16}, {{8, 8}, f16}}));
  add(text_of(axis(0), square));
  add(text_of(axis(1), square));
  add(text_of([&](const Tensors& in) { return Tensors{in[0] - in[1]}; }, two));
  add(text_of([&](const Tensors& in) { return Tensors{in[0] - in[0]}; }, square));
  for (const double eps : {1e-5, 1.000001e-5, 1.0000014e-5})
    add(text_of([=](const Tensors& in) { return Tensors{layer_norm(in[0], {}, {}, eps)}; },
                square));
  // What is written belongs to it.
  add(text_of([&](const Tensors& in) { return Tensors{relu(exp(in[0]))}; }, square));
  add(text_of([&](const Tensors& in) { return Tensors{exp(in[0]), relu(exp(in[0]))}; }, square));
  EXPECT_EQ(texts.size(), static_cast<std::size_t>(count));
}

// Queries and keys as parts of one product are read as if they had one each.
TEST(ProblemText, MergedProductsLeaveTheirReadersAlone) {
  const auto apart = [](const Tensors& in) {
    const auto head = [&](int seed) {
      return transpose(reshape(matmul(in[0], weight(8, 8, seed)), {1, 5, 2, 4}), {0, 2, 1, 3});
    };
    return Tensors{softmax(matmul(head(1), swapaxes(head(2), -1, -2)) * 0.5, -1)};
  };
  const auto scores = [](const LaidOutGraph& laid) {
    std::vector<ValueId> nodes;
    for (ValueId id = 0; id < laid.graph.size(); ++id)
      if (is_compute(laid.graph, id) && laid.graph.type(id).shape.rank() == 4) nodes.push_back(id);
    return problem_text(laid.graph, make_group(laid.graph, wiring(laid.graph), nodes));
  };
  const std::vector<TensorType> types = {{{1, 5, 8}, f32}};
  EXPECT_EQ(scores(laid_out(apart, types)), scores(laid_out(heads, types)));
  EXPECT_NE(scores(laid_out(apart, types)).find(" lies 2 1 3"), std::string::npos)
      << scores(laid_out(apart, types));
}

}  // namespace
}  // namespace tensor

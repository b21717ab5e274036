// The compiler asks every family once about every problem of a model, from fusion to lowering.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>

#include "src/compile.h"
#include "src/kernels/cuda/family.h"
#include "src/trace/trace.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tests/cuda/no_engine.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

// How often the family at each place of a table was asked about a problem.
std::map<std::pair<std::size_t, std::string>, int> questions;

template <std::size_t place>
std::optional<cuda::Implementation> counted(const Isolated& alone, const cuda::Machine& machine) {
  ++questions[{place, problem_key(alone)}];
  return cuda::cuda_families()[place].consider(alone, machine);
}

// The families of a table, each of which counts.
template <std::size_t... places>
std::span<const cuda::Family> counting(std::index_sequence<places...>) {
  static const std::array table = {
      cuda::Family{cuda::cuda_families()[places].name, counted<places>}...};
  return table;
}

constexpr std::size_t kFamilies = 17;

// Two equal blocks: attention with queries, keys and values side by side, and layer_norm folded
// into products where that can be; a convolution before them and sums behind.
Tensors model_of(double number, const Tensors& in) {
  const auto weight = [&](const Shape& shape) { return full(shape, number, f32); };
  Tensor x = relu(conv2d(in[0], weight({64, 3, 4, 4}), weight({64}), {.stride = 4}));
  x = x.reshape({1, 64, 64}).swapaxes(1, 2);
  const Tensor q = weight({64, 64}), k = weight({64, 64}), v = weight({64, 64}),
               up = weight({64, 256}), down = weight({256, 64}), gain = weight({64}),
               bias = weight({64});
  for (int block = 0; block < 2; ++block) {
    const Tensor y = layer_norm(x, gain, bias);
    const auto heads = [&](const Tensor& w) {
      return matmul(y, w).reshape({1, 64, 2, 32}).swapaxes(1, 2);
    };
    const Tensor attended = scaled_dot_product_attention(heads(q), heads(k), heads(v));
    x = x + attended.swapaxes(1, 2).reshape({1, 64, 64});
    x = x + matmul(gelu(matmul(layer_norm(x, gain, bias), up)), down);
  }
  return {softmax(mean(x, {1}), -1)};
}

Tensors model(const Tensors& in) { return model_of(0.01, in); }

TEST(Families, AreAskedOnceAboutEachProblem) {
  ASSERT_EQ(cuda::cuda_families().size(), kFamilies) << "the table of this test is another";
  for (const int capability : {75, 80, 90}) {
    const cuda::Machine machine = cuda::machine_of(cuda::typical_device(capability));
    detail::Target target = testing::target_without_gpu(capability);
    const auto families =
        std::make_shared<cuda::Families>(counting(std::make_index_sequence<kFamilies>()), machine);
    target.offers = families;
    target.lower = [&, lower = target.lower](const LaidOutGraph& laid, const FusionPlan& plan) {
      for (const Group& group : plan.groups)
        EXPECT_FALSE(families->build(laid, group).description.empty());
      return lower(laid, plan);
    };
    questions.clear();
    detail::compile_until(detail::Until::linked, model, {{{1, 3, 32, 32}, f32}}, {.dtype = f16},
                          target);
    EXPECT_GT(questions.size(), 20 * kFamilies);
    for (const auto& [question, count] : questions)
      EXPECT_EQ(count, 1) << cuda::cuda_families()[question.first].name;
  }
}

// How often a family built something.
int builds = 0;

template <std::size_t place>
std::optional<cuda::Implementation> noted(const Isolated& alone, const cuda::Machine& machine) {
  auto answer = cuda::cuda_families()[place].consider(alone, machine);
  if (answer)
    answer->build = [build = answer->build](const Isolated& group) {
      return ++builds, build(group);
    };
  return answer;
}

template <std::size_t... places>
std::span<const cuda::Family> noting(std::index_sequence<places...>) {
  static const std::array table = {
      cuda::Family{cuda::cuda_families()[places].name, noted<places>}...};
  return table;
}

// Calls `look` with the families and the plan of the model with these weights.
template <class Look>
void plan_model(double number, const Look& look) {
  const cuda::Machine machine = cuda::machine_of(cuda::typical_device(90));
  detail::Target target = testing::target_without_gpu(90);
  const auto families =
      std::make_shared<cuda::Families>(noting(std::make_index_sequence<kFamilies>()), machine);
  target.offers = families;
  target.lower = [&, lower = target.lower](const LaidOutGraph& laid, const FusionPlan& plan) {
    look(*families, laid, plan);
    return lower(laid, plan);
  };
  detail::compile_until(
      detail::Until::linked, [&](const Tensors& in) { return model_of(number, in); },
      {{{1, 3, 32, 32}, f32}}, {.dtype = f16}, target);
}

TEST(Families, BuildEqualGroupsOnceAndOthersAnew) {
  plan_model(0.01, [](cuda::Families& families, const LaidOutGraph& laid, const FusionPlan& plan) {
    const auto build_all = [&] {
      builds = 0;
      for (const Group& group : plan.groups) families.build(laid, group);
      return builds;
    };
    const int first = build_all();
    EXPECT_LT(first, std::ssize(plan.groups)) << "two blocks are equal";
    EXPECT_EQ(build_all(), 0);
    int others = 0;
    for (const Group& group : plan.groups)
      for (const Offer& offer : families.of(isolate(laid, group))) {
        if (offer.family != group.family || !offer.space() || others > 0) continue;
        Group other = group;
        for (const Schedule& schedule : offer.space()->all())
          if (schedule.text() != group.schedule) other.schedule = schedule.text();
        families.build(laid, other);
        EXPECT_EQ(builds, ++others) << "another schedule is another kernel";
      }
    EXPECT_EQ(others, 1);
    families.forget();
    EXPECT_EQ(build_all(), first);
  });
}

// Nor on the numbers of weights, which are not in the key.
TEST(Families, BuildTheSameForOtherWeights) {
  const auto descriptions = [](double number) {
    std::vector<std::string> all;
    plan_model(number,
               [&](cuda::Families& families, const LaidOutGraph& laid, const FusionPlan& plan) {
                 for (const Group& group : plan.groups) {
                   const cuda::Lowered lowered = families.build(laid, group);
                   for (const cuda::Call& call : lowered.calls) all.push_back(call.source.text);
                   for (const auto& packed : lowered.packed) all.push_back(packed.form);
                 }
               });
    return all;
  };
  EXPECT_EQ(descriptions(0.01), descriptions(0.02));
}

// The key of the one operator of a function.
std::string key_of(const TensorFunction& function, const TensorType& type) {
  const LaidOutGraph laid = lay_out(trace(function, {type}));
  return problem_key(
      isolate(laid, make_group(laid.graph, wiring(laid.graph), {laid.graph.outputs().front()})));
}

// What a kernel's text or its family depends on makes another key, whatever a double can hold.
TEST(Families, KeysTellNumbersAndRangesApart) {
  const auto plus = [](const Tensor& number) {
    return key_of([&](const Tensors& in) { return Tensors{in[0] + number}; },
                  {{8}, number.dtype()});
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 53;
  EXPECT_NE(plus(full({}, kLarge, i64)), plus(full({}, kLarge + 1, i64)));
  EXPECT_EQ(plus(full({}, kLarge, i64)), plus(full({}, kLarge, i64)));
  EXPECT_NE(plus(full({}, 1.0, f32)), plus(full({}, 1.0 + 0x1p-23, f32)));
  EXPECT_EQ(plus(full({8}, 1.0, f32)), plus(full({8}, 2.0, f32))) << "weights are operands";
  const auto taken = [](std::vector<std::int64_t> indices) {
    const Tensor places = array(indices, {3});
    return key_of([&](const Tensors& in) { return Tensors{take(in[0], places, 0)}; }, {{8}, f32});
  };
  EXPECT_NE(taken({0, 1, 2}), taken({0, 1, 3}));
  EXPECT_NE(taken({0, 1, 2}), taken({-1, 1, 2}));
  EXPECT_EQ(taken({0, 1, 2}), taken({0, 2, 2}));
}

}  // namespace
}  // namespace tensor

// The blocks of a model share their kernels, and their groups have equal texts.
#include "src/trace/isolate.h"

#include <gtest/gtest.h>

#include <set>

#include "src/kernels/cuda/family.h"
#include "src/trace/parallel.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

LaidOutGraph small_vit(std::int64_t layers) {
  models::vit::VitConfig config;
  config.width = 64, config.layers = layers, config.heads = 2, config.mlp = 128;
  config.image = {28, 28}, config.patch = {7, 7}, config.classes = 10;
  using models::vit::Vit;
  return nine::laid_out<Vit>(
      Vit::sized(config), {1, 3, 28, 28}, nine::on_gpu(f16, 80),
      [](const Vit& m, const Tensor& x) -> std::vector<Tensor> { return {m(x).logits}; });
}

struct Found {
  std::set<std::string> kernels, problems;
  std::size_t groups = 0;
};

Found found_in(const LaidOutGraph& graph, int capability) {
  const Machine machine = machine_of(typical_device(capability));
  const auto [laid, plan] =
      merge_parallel(graph, fuse(propose_parallel(graph), cuda_cost(machine)));
  Found found;
  for (const Group& group : plan.groups) {
    ++found.groups;
    found.problems.insert(problem_text(laid.graph, group));
    for (const Call& call : lower_group(laid, group, machine).calls)
      found.kernels.insert(call.entry);
  }
  return found;
}

TEST(IsolatedKernels, TheirNumberDoesNotGrowWithDepth) {
  for (const int capability : {75, 80, 90}) {
    const Found two = found_in(small_vit(2), capability), five = found_in(small_vit(5), capability);
    EXPECT_GT(five.groups, two.groups + 6);
    EXPECT_EQ(two.kernels, five.kernels) << capability;
    EXPECT_EQ(two.problems, five.problems) << capability;
  }
}

// What is looked up while a plan is made is what was measured for the plan that came of it.
TEST(IsolatedKernels, GroupsOfThePlanAreThoseThatWereCosted) {
  const Machine machine = machine_of(typical_device(90));
  const LaidOutGraph graph = small_vit(2);
  std::set<std::string> costed;
  const CostFn cost = [&](const LaidOutGraph& of, const Group& group) {
    costed.insert(problem_text(of.graph, group));
    return cuda_cost(machine)(of, group);
  };
  const auto [laid, plan] = merge_parallel(graph, fuse(propose_parallel(graph), cost));
  for (const Group& group : plan.groups) {
    const std::string text = problem_text(laid.graph, group);
    EXPECT_TRUE(costed.contains(text)) << text;
    const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
    EXPECT_GE(estimate_of(family, laid, group, machine).value_or(-1), 0) << text;
  }
}

}  // namespace
}  // namespace tensor::cuda

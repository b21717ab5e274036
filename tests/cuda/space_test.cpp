// What may be tried for a group on Hopper: the rules' structures, sizes, and that schedules drawn
// at random are kernels which compile without spills and are right.
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <set>

#include "src/kernels/cuda/attention/sm90.h"
#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/families.h"
#include "src/trace/parallel.h"
#include "tensor/error.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/space_testing.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

// ---- The rules.

TEST(Space, ProductsHaveTheStructuresThatTheirSidesAllow) {
  const auto sketches = [](std::int64_t tokens, std::int64_t features, std::int64_t depth,
                           bool is_constant) {
    GemmProblem p{1, tokens, features, depth, 0, 2, 0, 2, is_constant};
    return sketches_of(gemm_sm90_space(p, h200(), gemm_sm90_schedules(p, h200()).front()));
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(sketches(197, 768, 768, true),
            (Names{"cooperative", "swapped", "split", "shared_weights"}));
  EXPECT_EQ(sketches(197, 768, 128, true), (Names{"cooperative", "swapped", "shared_weights"}))
      << "too little depth to split";
  EXPECT_EQ(sketches(197, 768, 768, false), (Names{"cooperative", "swapped", "split"}));
  EXPECT_EQ(sketches(50, 768, 768, true), (Names{"cooperative", "swapped", "split"}))
      << "one tile of tokens shares nothing";
  EXPECT_EQ(sketches(12608, 3072, 768, true), (Names{"cooperative", "turns", "shared_weights"}));
}

TEST(Space, PointlessSchedulesOfProductsAreNotTried) {
  const GemmProblem small{1, 197, 768, 768, 0, 2, 0, 2}, large{1, 12608, 3072, 768, 0, 2, 0, 2};
  const auto fault = [](const GemmProblem& p, const std::string& text) {
    const Space space = gemm_sm90_space(p, h200(), gemm_sm90_schedules(p, h200()).front());
    const Schedule schedule = Schedule::parse(text);
    EXPECT_TRUE(std::any_of(space.sketches.begin(), space.sketches.end(), [&](const Sketch& s) {
      return s.contains(schedule);
    })) << text;
    return space.fault(schedule);
  };
  EXPECT_EQ(fault(small, "swapped tokens=104 groups=1 blocks=1 stages=6 late=0"), "");
  EXPECT_EQ(fault(small, "swapped tokens=104 groups=1 blocks=1 stages=6 late=1"), "");
  EXPECT_EQ(fault(small, "split tokens=200 groups=1 splits=2 stages=4 late=0"), "");
  EXPECT_EQ(fault(small, "cooperative groups=2 blocks=1 features=128 stages=4 band=4 late=0"),
            "the order of tiles matters in several rounds only");
  EXPECT_EQ(fault({1, 100, 768, 768, 0, 2, 0, 2},
                  "cooperative groups=3 blocks=1 features=64 stages=2 band=12 late=0"),
            "a side of the tile that the product does not have");
  EXPECT_EQ(fault(large, "cooperative groups=3 blocks=2 features=64 stages=3 band=4 late=0"),
            "a side of a tile is copied as one box, of 256 at most");
  EXPECT_EQ(fault(small, "swapped tokens=8 groups=3 blocks=2 stages=4 late=0"),
            "a side of a tile is copied as one box, of 256 at most");
  EXPECT_EQ(fault(large, "cooperative groups=2 blocks=1 features=128 stages=4 band=12 late=1"),
            "with several rounds the next kernel is late anyway");
  EXPECT_EQ(fault(large, "cooperative groups=2 blocks=1 features=256 stages=4 band=4 late=0"), "");
  EXPECT_EQ(fault(large, "turns groups=2 blocks=2 features=128 stages=4 band=16"), "");
  EXPECT_EQ(
      fault({1, 197, 64, 128, 0, 2, 0, 2}, "swapped tokens=104 groups=1 blocks=1 stages=4 late=0"),
      "more stages than steps");
  EXPECT_EQ(
      fault({1, 2048, 4096, 512, 0, 2, 0, 2}, "split tokens=128 groups=1 splits=2 stages=4 late=0"),
      "there are tiles enough without splits");
  EXPECT_EQ(
      fault({1, 1, 768, 768, 0, 2, 0, 2}, "split tokens=32 groups=1 splits=4 stages=3 late=0"), "");
  EXPECT_EQ(
      fault({1, 1, 768, 768, 0, 2, 0, 2}, "split tokens=32 groups=1 splits=2 stages=4 late=0"),
      "more columns than shares");
}

TEST(Space, AttentionHasWholeRowsWhereRegistersHoldThem) {
  const Space vit = attention_sm90_space({12, 197, 197, 64, 64}, h200()),
              detr = attention_sm90_space({8, 1050, 1050, 32, 32}, h200());
  EXPECT_EQ(sketches_of(vit), (std::set<std::string>{"whole_rows", "online", "split_keys"}));
  EXPECT_EQ(sketches_of(detr), (std::set<std::string>{"online", "split_keys"}));
  // 197 keys in as few blocks as any number of them allows: 13 of 16, 7 of 32, 5 of 48 ...
  for (const Sketch& sketch : vit.sketches)
    if (sketch.name == "online") {
      EXPECT_EQ(sketch.knobs[1].values, (std::vector<int>{16, 32, 48, 64, 80, 112}));
    }
  EXPECT_EQ(vit.fault(Schedule::parse("whole_rows groups=1 tiles=1 block=208 stages=1")), "");
  EXPECT_EQ(vit.fault(Schedule::parse("whole_rows groups=1 tiles=3 block=208 stages=1")),
            "fewer tiles a block need as many blocks");
  EXPECT_EQ(vit.fault(Schedule::parse("online groups=1 block=112 stages=6")),
            "more stages than blocks of keys");
  EXPECT_EQ(vit.fault(Schedule::parse("split_keys groups=1 block=112 parts=2 stages=1")), "");
  EXPECT_EQ(vit.fault(Schedule::parse("split_keys groups=1 block=112 parts=3 stages=1")),
            "parts without keys");
  EXPECT_EQ(vit.fault(Schedule::parse("split_keys groups=1 block=32 parts=6 stages=1")),
            "more clusters than run at once");
  EXPECT_EQ(vit.fault(Schedule::parse("split_keys groups=1 block=112 parts=2 stages=2")),
            "more stages than blocks of keys");
}

TEST(Space, ConvolutionsAreSplitWhereTilesAreFew) {
  const auto of_shape = [](const testing::ConvShape& shape) {
    const auto t = testing::traced_group(testing::conv_cases(shape, f16)[0]);
    return *space_of(kConv, t.laid, t.group, h200());
  };
  const Space few = of_shape({"few", {1, 512, 25, 42}, 512, 3, {.padding = 1}}),
              many = of_shape({"many", {8, 64, 200, 334}, 64, 3, {.padding = 1}});
  const auto fault = [](const Space& space, const std::string& text) {
    return space.fault(Schedule::parse("window_tma " + text));
  };
  EXPECT_EQ(fault(few, "groups=2 outputs=128 stages=6 resident=1 parts=3"), "");
  EXPECT_EQ(fault(few, "groups=2 outputs=128 stages=3 resident=2 parts=3"),
            "too few blocks for so many on a multiprocessor");
  EXPECT_EQ(fault(many, "groups=2 outputs=64 stages=4 resident=2 parts=2"),
            "there are tiles enough without parts");
  EXPECT_EQ(fault(many, "groups=2 outputs=128 stages=3 resident=2 parts=1"),
            "more outputs than the convolution has");
  EXPECT_EQ(fault(few, "groups=3 outputs=256 stages=2 resident=1 parts=1"), "too few registers");
  EXPECT_EQ(fault(few, "groups=2 outputs=256 stages=6 resident=1 parts=1"),
            "too little shared memory for a block");
}

// ---- Sizes, and what every space promises.

TEST(Space, SizesForViT) {
  for (const std::int64_t batch : {1, 8}) {
    const LaidOutGraph graph =
        nine::nine_models(nine::on_gpu(f16, 90), batch).at("vit-base-patch16-224")();
    const auto [laid, plan] =
        merge_parallel(graph, fuse(propose_parallel(graph), cuda_cost(h200())));
    std::set<std::string> seen;
    for (const Group& group : plan.groups) {
      const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
      const std::string problem = problem_text(laid.graph, group);
      const auto space = space_of(family, laid, group, h200());
      if (!space || !seen.insert(problem).second) continue;
      std::cout << "batch " << batch << ", " << family.name << ": " << space->size()
                << " schedules";
      std::map<std::string, int> count;
      for (const Schedule& s : space->all()) ++count[s.sketch];
      for (const auto& [name, n] : count) std::cout << ", " << name << ' ' << n;
      std::cout << "; level 0: " << space->chosen.text() << ", " << space->model_us(space->chosen)
                << " us\n    " << problem << '\n';
      EXPECT_GE(space->size(), 15) << problem;
      EXPECT_LE(space->size(), 5000) << problem;
      expect_sound(*space, problem);
    }
    EXPECT_GE(seen.size(), 5u);
  }
}

// Whatever a model has, level 0 is one of what may be tried.
TEST(Space, HoldsWhatLevelZeroTakes) {
  for (const std::int64_t batch : {1, 64})
    for (const char* name : {"detr-resnet-50-e3", "setr-pup", "vit-huge-patch14-224"}) {
      const LaidOutGraph graph = nine::nine_models(nine::on_gpu(f16, 90), batch).at(name)();
      const auto [laid, plan] =
          merge_parallel(graph, fuse(propose_parallel(graph), cuda_cost(h200())));
      std::set<std::string> seen;
      for (const Group& group : plan.groups) {
        const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
        if (!seen.insert(problem_text(laid.graph, group)).second ||
            !space_of(family, laid, group, h200()))
          continue;
        const auto space = space_of(family, laid, group, h200());
        if (!space) continue;
        EXPECT_TRUE(space->has(space->chosen)) << family.name << ' ' << space->chosen.text() << ": "
                                               << space->fault(space->chosen) << '\n'
                                               << *seen.rbegin();
        const double estimate = estimate_of(family, laid, group, h200()).value_or(-1);
        // Estimates count the launch, which schedules do not change.
        EXPECT_NEAR(space->model_us(space->chosen), estimate, h200().launch_us + 1e-6 * estimate)
            << family.name << ' ' << space->chosen.text();
      }
    }
}

// ---- Schedules at random are kernels.

TensorFunction product(std::int64_t features, std::int64_t depth, bool is_wide) {
  const Tensor w = random_tensor({features, depth}, f16, 1).transpose(),
               bias = random_tensor({features}, f32, 2);
  return [=](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w).astype(f32) + bias;
    if (is_wide) return {sum + in[1]};
    return {gelu(sum).astype(f16)};
  };
}

Sample convolution(const std::string& name, int processors) {
  for (const testing::ConvShape& shape : testing::conv_shapes())
    if (shape.name == name) {
      const testing::ConvCase c = testing::conv_cases(shape, f16)[2];
      return {name, &kConv, c.f, testing::inputs_of(c), processors};
    }
  return {};
}

std::vector<Sample> sm90_samples() {
  return {
      {"few tokens", &kGemmSm90, product(320, 384, false), {random_tensor({100, 384}, f16, 6)}, 12},
      {"one token", &kGemmSm90, product(320, 384, false), {random_tensor({1, 384}, f16, 9)}, 12},
      {"many tokens",
       &kGemmSm90,
       product(264, 128, true),
       {random_tensor({400, 128}, f16, 7), random_tensor({400, 264}, f32, 8)},
       3},
      {"whole rows", &kAttentionSm90, attention, heads(150, 70, f16), 2},
      {"blocks of keys", &kAttentionSm90, attention, heads(130, 300, f16), 8},
      convolution("wide_window", 4),
      convolution("pointwise", 64),
  };
}

TEST(Space, SchedulesAtRandomAreRight) {
  std::mt19937 random(2026);
  for (const Sample& sample : sm90_samples()) {
    expect_right_at_random(sample, 3, random);
    if (HasFailure()) return;
  }
}

TEST(Space, WhatDoesNotFitFallsBackToLevelZero) {
  for (const Sample& sample : sm90_samples()) expect_falls_back(sample);
}

// ViT-B's groups and convolutions of DETR: what the kernels are like at their real sizes.
TEST(Space, SchedulesAtRandomCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const std::size_t count = std::max<std::size_t>(more_schedules(), 1);
  std::mt19937 random(7);
  std::set<std::string> seen;
  for (const auto& [name, batch] :
       {std::pair{"vit-base-patch16-224", 1}, {"vit-base-patch16-224", 8}, {"setr-pup", 1}}) {
    const LaidOutGraph graph = nine::nine_models(nine::on_gpu(f16, 90), batch).at(name)();
    const auto [laid, plan] =
        merge_parallel(graph, fuse(propose_parallel(graph), cuda_cost(h200())));
    for (const Group& group : plan.groups) {
      const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
      if (!seen.insert(problem_text(laid.graph, group)).second ||
          !space_of(family, laid, group, h200()))
        continue;
      const Isolated alone = isolate(laid, group);
      const auto space = space_of(family, alone.laid, alone.group, h200());
      if (!space) continue;
      for (const Schedule& s : drawn(*space, count, random))
        expect_compiles(family, alone, s, h200());
    }
  }
}

}  // namespace
}  // namespace tensor::cuda

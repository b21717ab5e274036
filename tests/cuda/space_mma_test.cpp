// What may be tried for a group on every GPU but Hopper, and for float32 there too: tiles on
// registers, of mma.sync and of plain arithmetic.
#include <gtest/gtest.h>

#include <iostream>

#include "src/kernels/cuda/attention/mma.h"
#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/mma.h"
#include "src/trace/parallel.h"
#include "src/trace/passes/cast.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/space_testing.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;
using Names = std::set<std::string>;

// ---- The rules.

TEST(SpaceMma, ProductsHaveTilesOfWhatMultipliesThem) {
  const GemmProblem p{1, 197, 768, 768, 0, 2, 0, 2};
  EXPECT_EQ(sketches_of(gemm_tile_space(p, Multiplier::mma, machine(75))), Names{"register_tiles"});
  EXPECT_EQ(sketches_of(gemm_tile_space(p, Multiplier::plain, machine(90))), Names{"plain_tiles"});
  const Space space = gemm_tile_space(p, Multiplier::mma, machine(80)),
              rounded = gemm_tile_space(p, Multiplier::tf32, machine(80));
  EXPECT_EQ(fault(space, "register_tiles rows=64 columns=64 down=2 across=2 parts=1 stages=4"), "");
  EXPECT_EQ(fault(space, "register_tiles rows=64 columns=64 down=2 across=2 parts=8 stages=3"),
            "parts of four steps at least");
  EXPECT_EQ(fault(rounded, "register_tiles rows=64 columns=64 down=2 across=2 parts=8 stages=3"),
            "")
      << "steps of half the depth";
  EXPECT_EQ(fault(space, "register_tiles rows=32 columns=64 down=4 across=1 parts=1 stages=4"),
            "16 rows and columns for each warp");
  EXPECT_EQ(fault(space, "register_tiles rows=256 columns=256 down=2 across=4 parts=1 stages=4"),
            "64 sums a thread at most");
  const GemmProblem row{1, 1, 1000, 64, 0, 2, 0, 2};
  const Space few = gemm_tile_space(row, Multiplier::mma, machine(80));
  EXPECT_EQ(fault(few, "register_tiles rows=16 columns=64 down=1 across=2 parts=1 stages=2"), "");
  EXPECT_EQ(fault(few, "register_tiles rows=32 columns=64 down=1 across=2 parts=1 stages=2"),
            "more rows than the product has");
  EXPECT_EQ(fault(few, "register_tiles rows=16 columns=64 down=1 across=2 parts=1 stages=3"),
            "more stages than steps");
  const Space plain =
      gemm_tile_space({1, 12608, 3072, 768, 0, 4, 0, true}, Multiplier::plain, machine(89));
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=128 columns=128 down=4 across=2 slices=1 parts=1 stages=3"),
      "");
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=32 columns=64 down=4 across=1 slices=1 parts=1 stages=3"),
      "sums in fours");
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=32 columns=64 down=1 across=1 slices=1 parts=1 stages=3"),
      "an even number of warps");
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=128 columns=128 down=1 across=2 slices=1 parts=1 stages=3"),
      "128 sums a thread at most");
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=128 columns=128 down=4 across=2 slices=1 parts=4 stages=3"),
      "too much scratch");
  EXPECT_EQ(
      fault(plain, "plain_tiles rows=128 columns=128 down=4 across=2 slices=1 parts=2 stages=2"),
      "too few registers");
  const Space older =
      gemm_tile_space({1, 1024, 2048, 768, 0, 4, 0, true}, Multiplier::plain, machine(75));
  EXPECT_EQ(
      fault(older, "plain_tiles rows=32 columns=32 down=1 across=1 slices=4 parts=2 stages=2"),
      "there are tiles enough without parts");
  EXPECT_EQ(
      fault(older, "plain_tiles rows=128 columns=128 down=4 across=2 slices=1 parts=1 stages=2"),
      "too little shared memory");
}

TEST(SpaceMma, AttentionHasWholeRowsWhereRegistersHoldThem) {
  const AttentionProblem vit{12, 197, 197, 64, 64}, detr{8, 1050, 1050, 32, 32};
  for (const int capability : {75, 80, 120}) {
    EXPECT_EQ(sketches_of(attention_mma_space(vit, machine(capability))),
              (Names{"whole_rows_mma", "online_mma"}));
    EXPECT_EQ(sketches_of(attention_mma_space(detr, machine(capability))), Names{"online_mma"});
  }
  const Space space = attention_mma_space(vit, machine(80)),
              older = attention_mma_space(vit, machine(75));
  EXPECT_EQ(fault(space, "whole_rows_mma warps=4 slabs=1 block=208 stages=1"), "");
  EXPECT_EQ(fault(space, "online_mma warps=3 slabs=2 block=64 stages=2"), "");
  EXPECT_EQ(fault(space, "online_mma warps=4 slabs=2 block=80 stages=2"),
            "too few registers for two slabs");
  EXPECT_EQ(fault(space, "online_mma warps=4 slabs=1 block=112 stages=3"),
            "more stages than blocks of keys");
  EXPECT_EQ(fault(older, "online_mma warps=4 slabs=1 block=64 stages=1"), "");
  EXPECT_EQ(fault(attention_mma_space({12, 33, 197, 64, 64}, machine(80)),
                  "online_mma warps=4 slabs=1 block=64 stages=2"),
            "more warps than queries for them");
}

TEST(SpaceMma, ConvolutionsHaveTheWaysOfTheirType) {
  const testing::ConvShape shape{"", {1, 256, 25, 42}, 256, 3, {.padding = 1}};
  const auto of_type = [&](DType dtype, int capability, bool is_tf32) {
    auto t = testing::traced_group(testing::conv_cases(shape, dtype)[1]);
    if (is_tf32) t.laid.graph = round_products(t.laid.graph);
    return *space_of(kConv, t.laid, t.group, machine(capability));
  };
  EXPECT_EQ(sketches_of(of_type(f32, 80, false)), Names{"window_plain"});
  EXPECT_EQ(sketches_of(of_type(f32, 80, true)), Names{"window_mma"});
  EXPECT_EQ(sketches_of(of_type(f32, 75, true)), Names{"window_plain"});
  EXPECT_EQ(sketches_of(of_type(f16, 75, false)), Names{"window_mma"});
  EXPECT_EQ(sketches_of(of_type(bf16, 75, false)), Names{"window_plain"});
  EXPECT_TRUE(sketches_of(of_type(f16, 90, false)).contains("window_tma"));
  const Space mma = of_type(f16, 80, false), plain = of_type(f32, 80, false);
  const auto of_tile = [&](const std::string& text) { return fault(mma, "window_mma " + text); };
  EXPECT_EQ(of_tile("pixels=64 outputs=64 down=2 across=2 stages=4 resident=1 parts=2"), "");
  EXPECT_EQ(of_tile("pixels=128 outputs=64 down=2 across=2 stages=4 resident=1 parts=1"), "");
  EXPECT_EQ(of_tile("pixels=128 outputs=128 down=1 across=2 stages=4 resident=1 parts=1"),
            "64 sums a thread at most");
  EXPECT_EQ(of_tile("pixels=32 outputs=64 down=4 across=2 stages=4 resident=1 parts=1"),
            "16 pixels and outputs for each warp");
  EXPECT_EQ(of_tile("pixels=128 outputs=128 down=2 across=4 stages=4 resident=3 parts=1"),
            "too few registers");
  EXPECT_EQ(of_tile("pixels=64 outputs=64 down=2 across=2 stages=4 resident=4 parts=2"),
            "too few blocks for so many on a multiprocessor");
  EXPECT_EQ(fault(plain, "window_plain outputs=64 parts=2 resident=1"), "");
  EXPECT_EQ(fault(plain, "window_plain outputs=128 parts=2 resident=2"),
            "too few blocks for so many on a multiprocessor");
}

// ---- What every space promises.

LaidOutGraph model(const std::string& name, DType dtype, bool is_tf32) {
  Precision precision = nine::on_gpu(dtype, 80);
  precision.tf32 = is_tf32;
  return nine::nine_models(precision).at(name)();
}

struct Target {
  int capability;
  DType dtype;
  bool is_tf32 = false;
};
constexpr Target kTargets[] = {{75, f16}, {80, bf16},      {89, f16}, {100, f16},     {120, bf16},
                               {75, f32}, {80, f32, true}, {90, f32}, {90, f32, true}};

// Calls f(family, isolated group) for the groups of a model that have a space, each problem once.
void each_group(const LaidOutGraph& graph, const Machine& on,
                const std::function<void(const Family&, const Isolated&)>& f) {
  const auto [laid, plan] = merge_parallel(graph, fuse(propose_parallel(graph), cuda_cost(on)));
  std::set<std::string> seen;
  for (const Group& group : plan.groups) {
    const Family& family = cuda_families()[static_cast<std::size_t>(group.family)];
    if (!seen.insert(problem_text(laid.graph, group)).second || !space_of(family, laid, group, on))
      continue;
    f(family, isolate(laid, group));
  }
}

TEST(SpaceMma, HoldsWhatLevelZeroTakes) {
  for (const Target& target : kTargets)
    for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3"}) {
      const Machine on = machine(target.capability);
      std::map<std::string, std::set<std::int64_t>> sizes;
      each_group(
          model(name, target.dtype, target.is_tf32), on,
          [&](const Family& family, const Isolated& alone) {
            const auto space = space_of(family, alone.laid, alone.group, on);
            if (!space) return;
            sizes[std::string(family.name)].insert(space->size());
            EXPECT_TRUE(space->has(space->chosen)) << family.name << ' ' << space->chosen.text();
            const double estimate = estimate_of(family, alone.laid, alone.group, on).value_or(-1);
            EXPECT_NEAR(space->model_us(space->chosen), estimate, on.launch_us + 1e-6 * estimate)
                << family.name << ' ' << space->chosen.text();
          });
      std::cout << name << " on " << on.device.name << " in "
                << (target.is_tf32 ? "tf32" : tensor::name(target.dtype)) << ':';
      for (const auto& [family, of] : sizes) {
        std::cout << ' ' << family << ' ' << *of.begin() << " to " << *of.rbegin();
        EXPECT_LE(*of.rbegin(), 5000);
      }
      std::cout << " schedules\n";
      EXPECT_GE(sizes.size(), 2u) << "products and convolutions at least";
    }
}

// ---- Schedules at random are kernels.

TensorFunction product(std::int64_t features, std::int64_t depth, DType dtype) {
  const Tensor w = random_tensor({features, depth}, dtype, 1).transpose(),
               bias = random_tensor({features}, f32, 2);
  return [=](const Tensors& in) -> Tensors {
    return {gelu(matmul(in[0], w).astype(f32) + bias).astype(dtype)};
  };
}

Sample convolution(const testing::ConvShape& shape, DType dtype, int processors, int capability,
                   Graph (*pass)(const Graph&) = nullptr) {
  const testing::ConvCase c = testing::conv_cases(shape, dtype)[2];
  return {shape.name, &kConv, c.f, testing::inputs_of(c), processors, capability, pass};
}

std::vector<Sample> mma_samples() {
  const auto rows = [](std::int64_t tokens, std::int64_t depth, DType dtype) {
    return Tensors{random_tensor({tokens, depth}, dtype, 6)};
  };
  const testing::ConvShape window{"window", {1, 40, 13, 11}, 72, 3, {.padding = 1}},
      strided{"strided", {2, 64, 13, 11}, 72, 3, {.stride = 2, .padding = 1}},
      large{"large", {1, 48, 20, 21}, 72, 3, {.padding = 1}};  // so that no loop is faster
  return {
      {"f16", &kGemmMma, product(136, 264, f16), rows(100, 264, f16), 4, 75},
      {"bf16", &kGemmMma, product(136, 264, bf16), rows(100, 264, bf16), 8, 89},
      {"tf32", &kGemmMma, product(91, 200, f32), rows(70, 200, f32), 4, 90, round_products},
      {"plain", &kGemmPlain, product(91, 200, f32), rows(70, 200, f32), 4, 90},
      {"whole rows", &kAttentionMma, attention, heads(150, 70, bf16), 2, 80},
      {"blocks of keys", &kAttentionMma, attention, heads(130, 300, bf16), 8, 120},
      {"older", &kAttentionMma, attention, heads(70, 150, f16), 8, 75},
      {"attention in float32", &kAttentionPlain, attention, heads(70, 150, f32), 4, 90},
      convolution(strided, f16, 4, 80),
      convolution(window, f16, 4, 75),
      convolution(window, f32, 4, 80, round_products),
      convolution(large, f32, 4, 90),
  };
}

TEST(SpaceMma, SchedulesAtRandomAreRight) {
  std::mt19937 random(2026);
  for (const Sample& sample : mma_samples()) {
    expect_right_at_random(sample, 3, random);
    if (HasFailure()) return;
  }
}

TEST(SpaceMma, WhatDoesNotFitFallsBackToLevelZero) {
  for (const Sample& sample : mma_samples()) expect_falls_back(sample);
}

// Groups of models at their real sizes; unless more are asked for, one schedule of some of them.
TEST(SpaceMma, SchedulesAtRandomCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  // Ptxas keeps to fewer registers than there are now and then, and spills one or two.
  constexpr int kSpilled = 16;
  const std::size_t more = more_schedules();
  std::mt19937 random(7);
  std::size_t turn = 0;
  for (const Target& target : kTargets)
    for (const char* name : {"vit-base-patch16-224", "detr-resnet-50-e3"}) {
      const Machine on = machine(target.capability);
      each_group(model(name, target.dtype, target.is_tf32), on,
                 [&](const Family& family, const Isolated& alone) {
                   const auto space = space_of(family, alone.laid, alone.group, on);
                   if (!space || (more == 0 && turn++ % 6 != 0)) return;
                   for (const Schedule& s : drawn(*space, std::max<std::size_t>(more, 1), random))
                     expect_compiles(family, alone, s, on, kSpilled);
                 });
    }
}

}  // namespace
}  // namespace tensor::cuda

// Schedules of the Hopper product: checked, chosen, and compiled without spills.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "src/kernels/cuda/templates.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/gemm_sm90_cases.h"

namespace tensor::cuda {
namespace {

struct ProductCase {
  std::string name;
  TensorFunction f;
  std::vector<TensorType> inputs;
};

// y[tokens, features] with what a transformer does to it.
std::vector<ProductCase> cases(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
  const auto constant = [](const Shape& shape, DType type) {
    return broadcast_to(full({}, 0.5, f32).astype(type), shape).copy();
  };
  const Tensor w = constant({n, k}, dtype).transpose(), bias = constant({n}, f32),
               gain = constant({k}, f32), shift = constant({k}, f32);
  const TensorType x{{m, k}, dtype}, residual{{m, n}, f32};
  const auto product = [=](const Tensor& in) { return matmul(in, w).astype(f32); };
  return {
      {"plain", [=](const Tensors& in) -> Tensors { return {matmul(in[0], w)}; }, {x}},
      {"bias",
       [=](const Tensors& in) -> Tensors { return {(product(in[0]) + bias).astype(dtype)}; },
       {x}},
      {"gelu",
       [=](const Tensors& in) -> Tensors { return {gelu(product(in[0]) + bias).astype(dtype)}; },
       {x}},
      {"residual",
       [=](const Tensors& in) -> Tensors { return {product(in[0]) + bias + in[1]}; },
       {x, residual}},
      {"both",
       [=](const Tensors& in) -> Tensors {
         const Tensor sum = product(in[0]) + bias + in[1];
         return {sum, sum.astype(dtype)};
       },
       {x, residual}},
      {"narrow",
       [=](const Tensors& in) -> Tensors {
         return {(product(in[0]) + bias + in[1].astype(f32)).astype(dtype)};
       },
       {x, {{m, n}, dtype}}},
      {"power",
       [=](const Tensors& in) -> Tensors { return {power(product(in[0]) + bias, in[1])}; },
       {x, residual}},
      {"all",
       [=](const Tensors& in) -> Tensors {
         const Tensor sum = product(in[0]) + bias + in[1];
         return {sum, gelu(sum).astype(dtype)};
       },
       {x, residual}},
      {"sums",
       [=](const Tensors& in) -> Tensors {
         const Tensor sum = product(in[0]) + bias + in[1], rows = sum.astype(dtype);
         return {sum, rows, row_sums(rows)};
       },
       {x, residual}},
      {"narrow_sums",
       [=](const Tensors& in) -> Tensors {
         const Tensor rows = (product(in[0]) + bias + in[1].astype(f32)).astype(dtype);
         return {rows, row_sums(rows)};
       },
       {x, {{m, n}, dtype}}},
      {"norm",
       [=](const Tensors& in) -> Tensors {
         return {gelu(product(normalized(in[0], in[1], gain, shift)) + bias).astype(dtype)};
       },
       {x, {{k / kSummed, m, 2}, f32}}}};
}

struct Traced {
  LaidOutGraph laid;
  Group group;
};
Traced traced(const ProductCase& c) {
  Graph graph = trace(c.f, c.inputs);
  Traced t{lay_out(graph), {}};
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < t.laid.graph.size(); ++id)
    if (is_compute(t.laid.graph, id)) nodes.push_back(id);
  t.group = make_group(t.laid.graph, wiring(t.laid.graph), nodes);
  return t;
}

TEST(GemmSm90, SchedulesAreCheckedBeforeTheyAreBuilt) {
  const auto fault = [](GemmSchedule s, std::int64_t m = 512) {
    return s.fault(232448, {1, m, 512, 512, 0, 0, 0, 2});
  };
  for (const GemmSchedule& s : kSchedules) EXPECT_EQ(fault(s, 100), "") << s.name();
  EXPECT_EQ(fault({128, 64, 4, 1, 1, false}), "the side of the rows has 64 for each block");
  EXPECT_EQ(fault({100, 64, 4, 1, 1, true}), "8 to 256 columns in steps of 8");
  EXPECT_EQ(fault({64, 72, 4, 1, 1, false}), "features in panels of 64");
  EXPECT_EQ(fault({192, 256, 2, 3, 1, false}), "at most 72 sums a thread in three groups");
  EXPECT_EQ(fault({64, 64, 1, 1, 1, false}), "at least two stages");
  const GemmSchedule uneven{.tile_m = 104, .tile_n = 64, .swapped = true, .splits = 4};
  EXPECT_EQ(fault(uneven), "");
  EXPECT_FALSE(uneven.stages_outputs({1, 512, 512, 512, 0, 0, 0, 2}));
  EXPECT_EQ(fault({.tile_m = 64, .tile_n = 64, .splits = 2}), "only features as rows are split");
  EXPECT_EQ(fault({128, 256, 5, 2, 1, false}),
            "needs 279552 bytes of shared memory, a block has 232448");
}

// What was measured on an H200: depth is split in two or four, with stages enough, or not at all.
TEST(GemmSm90, TheModelKnowsSplits) {
  const auto best = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const GemmProblem p{1, m, n, k, 4, 4, 2, 0};
    const auto schedules = gemm_sm90_schedules(p, h200());
    for (const GemmSchedule& s : schedules)
      if (s.splits > 1) {
        EXPECT_GE(s.stages, 4) << s.name();
      }
    return schedules.front();
  };
  // As measured on an H200.
  EXPECT_GT(best(100, 256, 2048).splits, 1);
  EXPECT_GT(best(197, 768, 3072).splits, 1);
  EXPECT_GT(best(257, 1280, 5120).splits, 1);
  EXPECT_EQ(best(1050, 256, 2048).splits, 1);  // 4.8 us; of two blocks 5.3
  EXPECT_EQ(best(197, 768, 768).splits, 1);
  EXPECT_TRUE(best(197, 2304, 768).swapped);
  EXPECT_FALSE(best(12608, 3072, 768).swapped);
}

TEST(GemmSm90, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto check = [&](const Traced& t, const GemmSchedule& s) {
    const Lowered lowered = lower_gemm_sm90(t.laid, t.group, h200(), s);
    expect_no_trouble(lowered.calls.back().source, "sm_90a");
  };
  for (const ProductCase& c : cases(100, 320, 192, bf16)) {
    const Traced t = traced(c);
    for (const GemmSchedule& s : with_wide()) {
      // What takes most registers; GELU where there are most sums.
      const bool is_large = s.blocks * s.columns() >= 96 || s.groups == 3;
      const bool is_hard = c.name == "both" ||
                           s.tile_n == (c.name == "gelu" ? 256 : kWide.tile_n) ||
                           (is_large && (c.name == "norm" || c.name == "sums"));
      if (is_hard && fault(s, t.laid, t.group).empty()) check(t, s);
    }
  }
}

// For products of any size: the first schedules that the model likes, with little and with much to
// do afterwards.
TEST(GemmSm90, WhatTheModelLikesCompiles) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::set<std::string> seen;
  const auto check = [&](const ProductCase& c, const Traced& t) {
    const auto schedules = gemm_sm90_schedules(problem_of(t.laid, t.group), h200());
    for (std::size_t i = 0; i < std::min<std::size_t>(schedules.size(), 4); ++i) {
      const Lowered lowered = lower_gemm_sm90(t.laid, t.group, h200(), schedules[i]);
      GemmSchedule tile = schedules[i];
      tile.stages = 0;  // takes no registers
      if (!seen.insert(c.name + tile.name()).second) continue;
      SCOPED_TRACE(lowered.description);
      expect_no_trouble(lowered.calls.back().source, "sm_90a");
    }
  };
  constexpr std::int64_t kSizes[][3] = {{8192, 8192, 8192}, {4096, 4096, 1024}, {1050, 2048, 256},
                                        {12608, 3072, 768}, {577, 4096, 1024},  {100, 92, 256},
                                        {512, 512, 8192},   {1536, 1536, 1536}, {300, 2048, 2048}};
  for (const auto& [m, n, k] : kSizes)
    for (const ProductCase& c : cases(m, n, k, bf16)) {
      if (c.name == "bias" || c.name == "residual" || c.name == "narrow") continue;
      // Only rows of whole pieces are summed, and many only where they are stored once.
      const bool is_summed = c.name == "sums" || c.name == "narrow_sums";
      if (is_summed && (n % kSummed != 0 || (m > 2048 && c.name == "sums"))) continue;
      check(c, traced(c));
    }
}

// The operator row_sums and the kernels that stand for it must mean the same pieces.
TEST(GemmSm90, SumsPiecesAsLongAsTheOperatorDoes) {
  const std::string wanted = "kSummed = " + std::to_string(kSummed) + ";";
  bool is_found = false;
  for (const auto& [name, text] : device_headers())
    if (name == "row_sums.h") is_found = text.find(wanted) != std::string::npos;
  EXPECT_TRUE(is_found) << "need " << wanted << " in templates/row_sums.h";
}

}  // namespace
}  // namespace tensor::cuda

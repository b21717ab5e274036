// The Hopper product: schedules compile without spills, and are right on the emulator and on a GPU.
#include "src/kernels/cuda/gemm_sm90.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "src/ops/op.h"
#include "src/trace/trace.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/cuda/on_device.h"

namespace tensor::cuda {

static void PrintTo(const GemmSchedule& s, std::ostream* out) { *out << s.name(); }

namespace {

using Tensors = std::vector<Tensor>;

// A small set that covers: both orientations, one to three groups, odd numbers of column blocks,
// depth split among two blocks and among three with a rest, weights shared by two blocks.
const std::vector<GemmSchedule> kSchedules = {
    {104, 64, 4, 1, 1, true},
    {200, 64, 3, 1, 1, true},
    {72, 128, 4, 2, 1, true},
    {96, 128, 4, 2, 1, true},
    {8, 64, 2, 1, 1, true},
    {144, 192, 3, 3, 1, true},
    {64, 64, 4, 1, 1, false},
    {128, 128, 5, 2, 1, false},
    {128, 256, 3, 2, 1, false},
    {192, 128, 3, 3, 1, false},
    {64, 256, 2, 1, 1, false},
    {128, 64, 4, 2, 1, false},
    {64, 64, 4, 2, 1, false, true},
    {40, 192, 4, 3, 1, true},
    {128, 128, 5, 2, 2, false, true},
    {256, 128, 3, 2, 2, false},
    {.tokens = 112, .features = 64, .stages = 2, .swapped = true, .splits = 2},
    {.tokens = 128, .features = 128, .stages = 2, .groups = 2, .swapped = true, .splits = 3},
    {.tokens = 128, .features = 256, .stages = 3, .groups = 2, .shares = 2},
    {.tokens = 128,
     .features = 128,
     .stages = 5,
     .groups = 2,
     .blocks = 2,
     .takes_turns = true,
     .shares = 2}};

// As many sums as there are registers for.
const GemmSchedule kWide = {.tokens = 128,
                            .features = 192,
                            .stages = 4,
                            .groups = 2,
                            .blocks = 2,
                            .takes_turns = true,
                            .shares = 2};

// Ten panels of floats a group, more than there are buffers and no multiple of those.
const GemmSchedule kTenPanels = {
    .tokens = 128, .features = 160, .stages = 4, .groups = 2, .blocks = 2, .takes_turns = true};

std::vector<GemmSchedule> with_wide() {
  std::vector<GemmSchedule> all = kSchedules;
  all.push_back(kWide);
  return all;
}

Machine h200() { return machine_of(typical_device(90)); }

// As cast_norms makes it.
Tensor normalized(const Tensor& rows, const Tensor& sums, const Tensor& gain, const Tensor& shift) {
  const Tensor wide = rows.astype(f32);
  return apply_op(Op::layer_norm, {wide, gain, shift, sums}, {{"eps", 1e-5}}).astype(rows.dtype());
}
Tensor row_sums(const Tensor& rows) { return apply_op(Op::row_sums, {rows}); }

struct Case {
  std::string name;
  TensorFunction f;
  std::vector<TensorType> inputs;
};

// y[tokens, features] with what a transformer does to it.
std::vector<Case> cases(std::int64_t tokens, std::int64_t features, std::int64_t depth,
                        DType dtype) {
  const auto constant = [](const Shape& shape, DType type) {
    return broadcast_to(full({}, 0.5, f32).astype(type), shape).copy();
  };
  const Tensor w = constant({features, depth}, dtype).transpose(), bias = constant({features}, f32),
               gain = constant({depth}, f32), shift = constant({depth}, f32);
  const TensorType x{{tokens, depth}, dtype}, residual{{tokens, features}, f32};
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
       {x, {{tokens, features}, dtype}}},
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
      {"norm",
       [=](const Tensors& in) -> Tensors {
         return {gelu(product(normalized(in[0], in[1], gain, shift)) + bias).astype(dtype)};
       },
       {x, {{depth / kSummed, tokens, 2}, f32}}}};
}

struct Traced {
  LaidOutGraph laid;
  Group group;
};
Traced traced(const Case& c) {
  Graph graph = trace(c.f, c.inputs);
  Traced t{lay_out(graph), {}};
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < t.laid.graph.size(); ++id)
    if (is_compute(t.laid.graph, id)) nodes.push_back(id);
  t.group = make_group(t.laid.graph, wiring(t.laid.graph), nodes);
  return t;
}

GemmProblem problem_of(const LaidOutGraph& laid, const Group& group) {
  auto product = match_product(laid.graph, group);
  if (!product) product = match_normalized_product(laid.graph, group);
  return gemm_problem(laid.graph, group, *product);
}
// Why there is no such kernel of the group.
std::string fault(const GemmSchedule& s, const LaidOutGraph& laid, const Group& group) {
  return s.fault(h200().device.shared_block_bytes, problem_of(laid, group));
}
std::string fault(const GemmSchedule& s, const Traced& t) { return fault(s, t.laid, t.group); }
std::string fault(const GemmSchedule& s, const emulator::GroupCase& c) {
  return fault(s, c.laid(), c.groups().front());
}

TEST(GemmSm90, SchedulesAreCheckedBeforeTheyAreBuilt) {
  const auto fault = [](GemmSchedule s, std::int64_t tokens = 512) {
    return s.fault(232448, {1, tokens, 512, 512, 0, 0, 0, true});
  };
  for (const GemmSchedule& s : kSchedules) EXPECT_EQ(fault(s, 100), "") << s.name();
  EXPECT_EQ(fault({128, 64, 4, 1, 1, false}), "the side of the rows has 64 for each block");
  EXPECT_EQ(fault({100, 64, 4, 1, 1, true}), "8 to 256 columns in steps of 8");
  EXPECT_EQ(fault({64, 72, 4, 1, 1, false}), "features in panels of 64");
  EXPECT_EQ(fault({192, 256, 2, 3, 1, false}), "at most 72 sums a thread in three groups");
  EXPECT_EQ(fault({64, 64, 1, 1, 1, false}), "at least two stages");
  const GemmSchedule uneven{.tokens = 104, .features = 64, .swapped = true, .splits = 4};
  EXPECT_EQ(fault(uneven), "");
  EXPECT_FALSE(uneven.stages_outputs({1, 512, 512, 512, 0, 0, 0, true}));
  EXPECT_EQ(fault({.tokens = 64, .features = 64, .splits = 2}), "only features as rows are split");
  EXPECT_EQ(fault({128, 256, 5, 2, 1, false}),
            "needs 279552 bytes of shared memory, a block has 232448");
}

// What was measured on an H200: depth is split in two or four, with stages enough, or not at all.
TEST(GemmSm90, TheModelKnowsSplits) {
  const auto best = [](std::int64_t tokens, std::int64_t features, std::int64_t depth) {
    const GemmProblem p{1, tokens, features, depth, 4, 4, 2, false};
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
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto check = [&](const Traced& t, const GemmSchedule& s) {
    const Lowered lowered = lower_gemm_sm90(t.laid, t.group, h200(), s);
    const Call& call = lowered.calls.back();
    const std::string log = compiler->compile(call.source, "sm_90a").log;
    EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << call.entry << '\n'
        << log;
    EXPECT_EQ(log.find("C75"), std::string::npos) << call.entry << '\n' << log;
  };
  for (const Case& c : cases(100, 320, 192, bf16)) {
    const Traced t = traced(c);
    for (const GemmSchedule& s : with_wide()) {
      // What takes most registers; GELU where there are most sums.
      const bool is_large = s.blocks * s.columns() >= 96 || s.groups == 3;
      const bool is_hard = c.name == "both" ||
                           s.features == (c.name == "gelu" ? 256 : kWide.features) ||
                           (is_large && (c.name == "norm" || c.name == "sums"));
      if (is_hard && fault(s, t).empty()) check(t, s);
    }
  }
}

// For products of any size: the first schedules that the model likes, with little and with much to
// do afterwards.
TEST(GemmSm90, WhatTheModelLikesCompiles) {
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  std::set<std::string> seen;
  const auto check = [&](const Case& c, const Traced& t) {
    const auto schedules = gemm_sm90_schedules(problem_of(t.laid, t.group), h200());
    for (std::size_t i = 0; i < std::min<std::size_t>(schedules.size(), 4); ++i) {
      const Lowered lowered = lower_gemm_sm90(t.laid, t.group, h200(), schedules[i]);
      GemmSchedule tile = schedules[i];
      tile.stages = 0;  // takes no registers
      if (!seen.insert(c.name + tile.name()).second) continue;
      const std::string log = compiler->compile(lowered.calls.back().source, "sm_90a").log;
      EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
          << lowered.description << '\n'
          << log;
    }
  };
  constexpr std::int64_t kSizes[][3] = {{8192, 8192, 8192}, {4096, 4096, 1024}, {1050, 2048, 256},
                                        {12608, 3072, 768}, {577, 4096, 1024},  {100, 92, 256},
                                        {512, 512, 8192},   {1536, 1536, 1536}, {300, 2048, 2048}};
  for (const auto& [tokens, features, depth] : kSizes)
    for (const Case& c : cases(tokens, features, depth, bf16)) {
      if (c.name == "bias" || c.name == "residual" || c.name == "narrow") continue;
      // Only rows of few tokens are summed.
      if (c.name == "sums" && (features % kSummed != 0 || tokens > 2048)) continue;
      check(c, traced(c));
    }
}

// What is stored as it comes, and with all that may be fused.
emulator::GroupCase product_case(Generator& random, std::int64_t tokens, std::int64_t features,
                                 std::int64_t depth, bool is_fused) {
  const auto normal = [&](const Shape& shape, DType dtype) {
    return random.normal(shape).astype(dtype);
  };
  const Tensor w = normal({features, depth}, f16), bias = normal({features}, f32);
  const TensorFunction plain = [=](const Tensors& in) -> Tensors {
    return {matmul(in[0], w.transpose())};
  };
  const TensorFunction fused = [=](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w.transpose()).astype(f32) + bias + in[1];
    return {sum, gelu(sum).astype(f16)};
  };
  const Tensor x = normal({tokens, depth}, f16);
  if (!is_fused) return emulator::GroupCase(plain, {x});
  return emulator::GroupCase(fused, {x, normal({tokens, features}, f32)});
}

// LayerNorm before a product, of rows far from zero; weights of the norm about as large as `gain`.
emulator::GroupCase normalized_case(Generator& random, std::int64_t tokens, std::int64_t features,
                                    std::int64_t depth, DType dtype, double gain, bool is_plain) {
  const Tensor w = random.normal({depth, features}).astype(dtype), bias = random.normal({features}),
               weight = random.normal({depth}) * gain, shift = random.normal({depth}) * gain;
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor product = matmul(normalized(in[0], in[1], weight, shift), w);
    if (is_plain) return {product};
    return {gelu(product.astype(f32) + bias).astype(dtype), product.astype(f32) * 2};
  };
  const Tensor means = random.normal({tokens, 1}) * 8, x = random.normal({tokens, depth}) * 3;
  const Tensor rows = (x + means).astype(dtype);
  return emulator::GroupCase(f, {rows, row_sums(rows)});
}

// What makes such rows: a residual's sum, stored twice, and the sums of its rows.
emulator::GroupCase summed_case(Generator& random, const Shape& batch, std::int64_t tokens,
                                std::int64_t features, std::int64_t depth, DType dtype) {
  const Tensor w = random.normal({depth, features}).astype(dtype), bias = random.normal({features});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w).astype(f32) + bias + in[1], rows = sum.astype(dtype);
    return {sum, rows, row_sums(rows)};
  };
  const auto normal = [&](std::int64_t width) {
    Shape shape = batch;
    shape.push_back(tokens);
    shape.push_back(width);
    return random.normal(shape);
  };
  return emulator::GroupCase(f, {normal(depth).astype(dtype), normal(features) * 20 + 8});
}

// `processors`: fewer than there are, so that a block has several tiles.
emulator::GroupCase::Lower by(const GemmSchedule& s, int processors = 0) {
  return [=](const LaidOutGraph& laid, const Group& group, Machine machine) {
    if (processors > 0) machine.device.multiprocessors = processors;
    return lower_gemm_sm90(laid, group, machine, s);
  };
}

// Every schedule on the emulator, of awkward numbers of tokens in turn.
TEST(GemmSm90, IsRight) {
  Generator random(3);
  constexpr std::int64_t kTokens[] = {1, 7, 63, 65, 197, 257};
  for (std::size_t i = 0; i < kSchedules.size(); ++i) {
    const GemmSchedule& s = kSchedules[i];
    for (const std::size_t turn : {0, 1}) {
      const std::int64_t tokens = kTokens[(i + turn) % 6];
      SCOPED_TRACE(s.name() + " of " + std::to_string(tokens) + " tokens");
      emulator::GroupCase group =
          product_case(random, tokens, 136, s.splits > 1 ? 328 : 72, turn != 1);
      emulator::expect_emulated(group, by(s, 2), 90);
    }
    if (HasFailure()) return;
  }
  emulator::GroupCase wide = product_case(random, 257, 200, 72, false);
  emulator::expect_emulated(wide, by(kWide, 2), 90);
  // Every block has several tiles for each of its groups.
  emulator::GroupCase many = product_case(random, 700, 136, 200, true);
  for (const GemmSchedule& s : kSchedules)
    if (s.takes_turns || s.shares > 1) emulator::expect_emulated(many, by(s, 2), 90, 2);
}

// A residual of either width in every batch, of which the last rows and features fill no box. What
// does not lie in rows of whole chunks is read by the epilogue.
TEST(GemmSm90, AddsWhatComesAsBoxes) {
  Generator random(17);
  std::mt19937 layouts(19);
  const auto normal = [&](const Shape& shape, DType dtype) {
    return random.normal(shape).astype(dtype);
  };
  std::vector<GemmSchedule> schedules = {kTenPanels, kWide};
  for (const GemmSchedule& s : kSchedules)
    if (!s.swapped) schedules.push_back(s);
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const GemmSchedule& s = schedules[i];
    const bool is_turned = s.shares == 1 && i % 2 == 0, lies_anyhow = i % 5 == 4;
    const DType dtype = i % 2 ? f16 : f32;
    const std::int64_t tokens = i % 4 < 2 ? 257 : 65, batches = i < 2 ? 3 : i % 3 + 1;
    SCOPED_TRACE(s.name() + " of " + std::to_string(tokens) + " tokens");
    const Tensor bias = normal({136}, f32), w = normal({72, 136}, f16);
    const bool is_constant = !is_turned || s.features % 64 != 0;
    const TensorFunction f = [=](const Tensors& in) -> Tensors {
      const Tensor product = matmul(in[0], is_constant ? w : in[2]).astype(f32);
      return {(product + bias + in[1].astype(f32)).astype(dtype)};
    };
    Tensors inputs = {normal({batches, tokens, 72}, f16), normal({batches, tokens, 136}, dtype)};
    if (!is_constant) inputs.push_back(normal({batches, 72, 136}, f16));
    emulator::GroupCase group(f, inputs, lies_anyhow ? &layouts : nullptr);
    const auto lower = [&](const LaidOutGraph& laid, const Group& of, const Machine& machine) {
      Lowered lowered = by(s, 2)(laid, of, machine);
      EXPECT_EQ(lowered.calls.back().source.text.find("kAddend = true") != std::string::npos,
                !lies_anyhow);
      return lowered;
    };
    emulator::expect_emulated(group, lower, 90);
    if (HasFailure()) return;
  }
}

TEST(GemmSm90, NormalizesRows) {
  Generator random(11);
  constexpr std::int64_t kTokens[] = {7, 65, 197};
  const auto schedules = with_wide();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const std::int64_t tokens = kTokens[i % 3];
    SCOPED_TRACE(schedules[i].name() + " of " + std::to_string(tokens) + " tokens");
    const double gain = i % 3 == 0 ? 1 : i % 3 == 1 ? 1e-5 : 1e4;
    emulator::GroupCase group = normalized_case(random, tokens, 136, i % 2 ? 192 : 320,
                                                i % 2 ? f16 : bf16, gain, i % 3 == 0);
    if (!fault(schedules[i], group).empty()) continue;
    emulator::expect_emulated(group, by(schedules[i], 2), 90);
    if (HasFailure()) return;
  }
  emulator::GroupCase chosen = normalized_case(random, 33, 100, 256, f16, 1, false);
  emulator::expect_emulated(chosen, kGemmSm90, 90);
  // With an addend beside.
  const Tensor w = random.normal({128, 136}).astype(f16), gain = random.normal({128}),
               shift = random.normal({128});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor product = matmul(normalized(in[0], in[1], gain, shift), w);
    return {(product.astype(f32) + in[2].astype(f32)).astype(f16)};
  };
  const Tensor x = random.normal({257, 128}).astype(f16), y = random.normal({257, 136}).astype(f16);
  for (const GemmSchedule& s : schedules) {
    if (s.swapped || s.shares > 1 || s.groups != 2) continue;
    SCOPED_TRACE(s.name() + " with an addend");
    emulator::GroupCase group(f, {x, row_sums(x), y});
    if (!fault(s, group).empty()) continue;
    emulator::expect_emulated(group, by(s, 2), 90);
  }
}

TEST(GemmSm90, SumsRows) {
  Generator random(13);
  constexpr std::int64_t kTokens[] = {1, 7, 65, 197, 257};
  const auto schedules = with_wide();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const GemmSchedule& s = schedules[i];
    SCOPED_TRACE(s.name());
    const Shape batch = i % 4 == 3 ? Shape{2} : Shape{};
    emulator::GroupCase group = summed_case(random, batch, kTokens[i % 5], i % 2 ? 192 : 320,
                                            s.splits > 1 ? 328 : 72, i % 2 ? f16 : bf16);
    if (!fault(s, group).empty()) continue;
    emulator::expect_emulated(group, by(s, 2), 90);
    if (HasFailure()) return;
  }
  emulator::GroupCase chosen = summed_case(random, {}, 33, 128, 264, f16);
  emulator::expect_emulated(chosen, kGemmSm90, 90);
}

// Batches, broadcast and not, of any layout; factors and weights that must be copied or packed;
// features that fill no panel.
struct Shapes {
  Shape left, right;
  bool is_constant;
};
const std::vector<Shapes> kShapes = {
    {{3, 65, 40}, {3, 40, 72}, false},
    {{2, 2, 33, 24}, {1, 2, 24, 64}, false},
    {{2, 3, 20, 64}, {64, 100}, true},
    {{1, 5, 64}, {64, 1000}, true},
    {{50, 72}, {72, 4}, true},
    {{7, 100}, {100, 92}, true},
    {{2, 2, 20, 30}, {2, 2, 30, 7}, false},
    {{1, 1}, {1, 1}, false},
};

void check_shapes(const std::function<void(emulator::GroupCase&)>& check) {
  Generator random(5);
  std::mt19937 layouts(7);
  for (const Shapes& shapes : kShapes)
    for (const bool is_random : {false, true}) {
      const Tensor a = random.normal(shapes.left).astype(bf16),
                   b = random.normal(shapes.right).astype(bf16);
      const TensorFunction f = [=](const Tensors& in) -> Tensors {
        return {relu(matmul(in[0], shapes.is_constant ? b : in[1]).astype(f32) * 0.25)};
      };
      emulator::GroupCase group(f, shapes.is_constant ? Tensors{a} : Tensors{a, b},
                                is_random ? &layouts : nullptr);
      check(group);
    }
}

TEST(GemmSm90, TakesAnyShapesAndLayouts) {
  check_shapes([](emulator::GroupCase& group) { emulator::expect_emulated(group, kGemmSm90, 90); });
}

// ---- On a GPU. Schedules are cases of their own, so that several processes can share them out.

class GemmSm90OnGpu : public testing::TestWithParam<GemmSchedule> {
 protected:
  void SetUp() override {
    if (const std::string reason = emulator::no_device(90, true); !reason.empty())
      GTEST_SKIP() << reason;
  }
};

TEST_P(GemmSm90OnGpu, IsRight) {
  const GemmSchedule& s = GetParam();
  Generator random(3);
  for (const std::int64_t tokens : {1, 65, 197, 257}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    for (const bool is_fused : {false, true}) {
      emulator::GroupCase group = product_case(random, tokens, 328, 520, is_fused);
      emulator::expect_on_device(group, by(s));
    }
  }
  // More tiles than multiprocessors.
  if (s.splits == 1 && s.features >= 128) {
    emulator::GroupCase large = product_case(random, 3000, 1544, 328, true);
    emulator::expect_on_device(large, by(s));
  }
  emulator::GroupCase normalized = normalized_case(random, 3000, 1544, 1280, f16, 1, false);
  if (fault(s, normalized).empty()) emulator::expect_on_device(normalized, by(s));
  emulator::GroupCase summed = summed_case(random, {}, 3000, 1536, 328, f16);
  if (fault(s, summed).empty()) emulator::expect_on_device(summed, by(s));
}

INSTANTIATE_TEST_SUITE_P(Schedules, GemmSm90OnGpu, testing::ValuesIn(with_wide()),
                         [](const auto& schedule) { return schedule.param.name(); });

TEST(GemmSm90ChosenOnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(90, true); !reason.empty())
    GTEST_SKIP() << reason;
  check_shapes([](emulator::GroupCase& group) { emulator::expect_on_device(group, kGemmSm90); });
  Generator random(3);
  emulator::GroupCase large = product_case(random, 3000, 1544, 328, true);
  emulator::expect_on_device(large, kGemmSm90);
  emulator::GroupCase normalized = normalized_case(random, 3000, 1544, 320, f16, 1, false);
  emulator::expect_on_device(normalized, kGemmSm90);
}

}  // namespace
}  // namespace tensor::cuda

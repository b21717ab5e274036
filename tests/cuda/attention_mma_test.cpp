// Attention with mma.sync: every head dimension and schedule compiles without spills, and is right
// on the emulator and on a GPU.
#include "src/kernels/cuda/attention/mma.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"

namespace tensor::cuda {
namespace {

using Problem = emulator::AttentionShape;
using emulator::attention_case;

constexpr int kMmaCapabilities[] = {75, 80, 86, 89, 100, 120};

emulator::GroupCase::Lower by(const AttentionMmaSchedule& s) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& on) {
    return lower_attention_mma(laid, group, on, s);
  };
}

struct MmaChoice {
  int capability;
  Problem problem;
  AttentionMmaSchedule schedule;
};
// All keys at once and in blocks; one to eight warps with a slab or two; every depth; awkward
// numbers of queries and keys.
std::vector<MmaChoice> mma_choices() {
  Problem half{1, 1, 33, 197, 64};
  half.magnitude = 1e4;
  half.dtype = f16;
  Problem older{2, 2, 65, 100, 72, true}, oldest{1, 2, 63, 257, 40}, whole{1, 2, 7, 65, 128};
  for (Problem* p : {&older, &oldest, &whole}) p->dtype = f16;
  return {{80, {1, 1, 1, 2, 64}, {1, 1, 16, 1}},
          {80, {1, 2, 7, 63, 32}, {1, 1, 64, 1}},
          {86, {2, 1, 65, 65, 40}, {4, 1, 80, 1}},
          {80, {1, 2, 197, 197, 48}, {4, 2, 48, 2}},
          {80, {1, 1, 63, 257, 72}, {4, 1, 272, 1}},
          {89, {1, 1, 257, 65, 80}, {8, 1, 32, 2}},
          {80, {2, 1, 20, 100, 96, true}, {2, 1, 112, 1}},
          {120, {1, 1, 65, 197, 128}, {4, 1, 64, 2}},
          {100, {2, 2, 70, 197, 64, true}, {2, 2, 64, 3}},
          {80, {1, 1, 197, 257, 32, false, 2e3}, {8, 2, 64, 3}},
          {80, half, {2, 1, 208, 1}},
          {80, {2, 2, 65, 100, 72, true, 1, bf16, true}, {2, 1, 32, 4}},
          {80, {2, 2, 65, 100, 72, true, 1, bf16, false, true}, {2, 1, 32, 4}},
          {75, older, {4, 1, 32, 1}},
          {75, oldest, {2, 2, 64, 1}},
          {75, whole, {1, 1, 80, 1}}};
}

TEST(AttentionMma, IsRight) {
  for (const MmaChoice& c : mma_choices()) {
    SCOPED_TRACE(c.schedule.name());
    emulator::GroupCase group = attention_case(c.problem);
    emulator::expect_emulated(group, by(c.schedule), c.capability);
    if (HasFailure()) return;
  }
}

TEST(AttentionMma, TakesMasksOfWindows) {
  Problem p{4, 2, 49, 49, 32};
  p.dtype = f16, p.windows = 2;
  emulator::GroupCase group = attention_case(p);
  emulator::expect_emulated(group, kAttentionMma, 80);
}

TEST(AttentionMma, TakesAnyLayout) {
  std::mt19937 layouts(5);
  for (int i = 0; i < 4; ++i) {
    Problem p{2, 2, 20, 33, 24, i % 2 == 1};
    p.dtype = f16;
    emulator::GroupCase group = attention_case(p, &layouts);
    emulator::expect_emulated(group, kAttentionMma, i % 2 == 0 ? 75 : 80);
  }
}

TEST(AttentionMma, TakesWhatItsGpuHas) {
  const auto takes = [](DType dtype, int capability) {
    Problem p{1, 2, 20, 33, 24};
    p.dtype = dtype;
    return attention_case(p).accepted(kAttentionMma, machine(capability));
  };
  for (const int capability : kMmaCapabilities) {
    EXPECT_TRUE(takes(f16, capability));
    EXPECT_EQ(takes(bf16, capability), capability >= 80);
    EXPECT_FALSE(takes(f32, capability));
  }
  EXPECT_FALSE(takes(f16, 90)) << "Hopper has a family of its own";
}

// More work takes longer, and none is done faster than the GPU multiplies.
TEST(AttentionMma, TheModelIsPlausible) {
  for (const int capability : kMmaCapabilities) {
    const Machine on = machine(capability);
    double last = 0;
    for (const std::int64_t batches : {1, 12, 128, 768, 3072}) {
      const AttentionProblem p{batches, 197, 197, 64, 64};
      const auto schedules = attention_mma_schedules(p, on);
      ASSERT_FALSE(schedules.empty());
      const double time = model_attention_mma(p, schedules.front(), on).total;
      EXPECT_GE(time, last);
      last = time;
      EXPECT_GT(time, 4. * static_cast<double>(batches) * 197 * 197 * 64 / on.tensor_tflops / 1e6);
    }
  }
}

// What is chosen for every depth, and the largest blocks that there are.
TEST(AttentionMma, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto check = [&](Problem p, int capability, const AttentionMmaSchedule* wanted) {
    p.dtype = f16;
    const emulator::GroupCase t = attention_case(p);
    const Machine on = machine(capability);
    const AttentionProblem problem = *attention_problem(t.laid().graph, t.group());
    const AttentionMmaSchedule s = wanted ? *wanted : attention_mma_schedules(problem, on).front();
    const Lowered lowered = lower_attention_mma(t.laid(), t.group(), on, s);
    ASSERT_EQ(lowered.calls.size(), 1u);
    expect_no_trouble(lowered.calls.back().source, on.device.architecture());
  };
  // What is chosen.
  for (const int capability : kMmaCapabilities)
    for (const std::int64_t depth : {64, 80}) {
      check({2, 6, 65, 197, depth}, capability, nullptr);
      check({2, 8, 130, 1050, depth, depth == 80}, capability, nullptr);
    }
  for (const int capability : {75, 80})
    for (const std::int64_t depth : {32, 40, 48, 72, 96, 128})
      check({1, 8, 100, 1050, depth, depth == 32}, capability, nullptr);
  // What takes the most registers.
  for (const auto& [depth, keys, s] :
       std::vector<std::tuple<std::int64_t, std::int64_t, AttentionMmaSchedule>>{
           {64, 257, {4, 1, 272, 1}},
           {96, 257, {8, 1, 272, 1}},
           {64, 120, {4, 2, 128, 1}},
           {64, 1050, {4, 2, 64, 2}},
           {128, 1050, {8, 1, 96, 2}},
           {32, 1050, {4, 1, 128, 2}},
           {40, 1050, {4, 2, 64, 2}}})
    check({2, 2, 130, keys, depth, true}, 80, &s);
}

TEST(AttentionMmaOnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(80); !reason.empty()) GTEST_SKIP() << reason;
  for (const MmaChoice& c : mma_choices()) {
    if (c.capability < 80) continue;
    SCOPED_TRACE(c.schedule.name());
    emulator::GroupCase group = attention_case(c.problem);
    emulator::expect_on_device(group, by(c.schedule));
  }
}

}  // namespace
}  // namespace tensor::cuda

// Attention on Hopper: every head dimension and schedule compiles without spills, and is right on
// the emulator and on a GPU.
#include "src/kernels/cuda/attention/sm90.h"

#include <gtest/gtest.h>

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

// `processors`: fewer than there are, so that a block has several heads.
emulator::GroupCase::Lower by(const AttentionSchedule& s, int processors = 0) {
  return [=](const LaidOutGraph& laid, const Group& group, Machine machine) {
    if (processors > 0) machine.device.multiprocessors = processors;
    return lower_attention_sm90(laid, group, machine, s);
  };
}

TEST(AttentionSm90, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto check = [&](const Problem& p, const AttentionSchedule& s) {
    const emulator::GroupCase t = attention_case(p);
    const Lowered lowered = lower_attention_sm90(t.laid(), t.group(), h200(), s);
    ASSERT_EQ(lowered.calls.size(), 1u);
    expect_no_trouble(lowered.calls.back().source, "sm_90a");
  };
  for (const std::int64_t depth : {32, 40, 48, 64, 72, 80, 96, 128}) {
    check({2, 2, 65, 197, depth}, {1, 1, 208, 1});
    check({2, 2, 65, 257, depth, depth == 80}, {1, 2, 272, 1});
    check({2, 2, 130, 1050, depth, depth == 32}, {2, 2, depth > 64 ? 128 : 176, 2});
    check({2, 2, 100, 1050, depth, depth == 32}, {1, 1, depth > 64 ? 144 : 176, 1, 6});
    check({2, 2, 100, 1050, depth, depth == 80}, {1, 1, 128, 1, 8});
  }
  check({2, 12, 197, 197, 64}, {2, 4, 208, 2});
  check({2, 12, 197, 197, 64, false, 1, f16, false, true}, {2, 4, 208, 2});
  check({2, 2, 100, 1050, 32, false, 1, f16, false, true}, {1, 1, 176, 1, 6});
  check({2, 12, 197, 576, 64}, {3, 3, 96, 2});
}

// Up to 272 keys are held at once, more come in large blocks (measured: small ones take twice as
// long).
// The blocks are those of the fastest schedules measured on an H200, or larger ones.
TEST(AttentionSm90, ChoosesLargeBlocks) {
  const auto best = [](std::int64_t heads, std::int64_t queries, std::int64_t keys,
                       std::int64_t depth) {
    return attention_sm90_schedules({heads, queries, keys, depth, depth}, h200()).front();
  };
  EXPECT_EQ(best(12, 197, 197, 64).block, 208);
  EXPECT_EQ(best(768, 197, 197, 64).block, 208);
  EXPECT_EQ(best(16, 257, 257, 80).block, 144);  // 4.6 us; all keys at once 4.8
  EXPECT_GE(best(16, 577, 577, 64).block, 176);
  EXPECT_GE(best(8, 1050, 1050, 32).block, 176);
  // Few queries: a cluster shares the keys. 4.3 to 4.6 us; one block with 272 at a time takes 7.6.
  EXPECT_EQ(best(8, 100, 1050, 32).parts, 6);
  EXPECT_EQ(best(8, 100, 1050, 32).block, 176);
  EXPECT_EQ(best(8, 100, 100, 32).parts, 1);  // 2.3 us; with two parts 3.0
}

// There is nothing to share then, and nothing to divide by.
TEST(AttentionSm90, TakesNoHeadsAndNoQueries) {
  for (const AttentionProblem& p :
       {AttentionProblem{0, 100, 1050, 32, 32}, AttentionProblem{8, 0, 1050, 32, 32}})
    for (const AttentionSchedule& s : attention_sm90_schedules(p, h200())) EXPECT_EQ(s.parts, 1);
}

struct Sm90Choice {
  Problem problem;
  AttentionSchedule schedule;
};
// All keys at once and in blocks; groups with a tile each, several or none; every depth.
const std::vector<Sm90Choice> kSm90Choices = {
    {{1, 1, 1, 2, 64}, {1, 1, 16, 1}},
    {{1, 2, 7, 63, 32}, {1, 1, 64, 1}},
    {{2, 1, 65, 65, 40}, {2, 2, 80, 2}},
    {{1, 2, 197, 197, 48}, {2, 4, 208, 1}},
    {{1, 1, 63, 257, 72}, {1, 1, 272, 1}},
    {{1, 1, 257, 65, 80}, {3, 6, 80, 2}},
    {{2, 1, 20, 100, 96, true}, {1, 1, 112, 1}},
    {{1, 1, 65, 197, 128}, {2, 2, 64, 2}},
    {{2, 2, 70, 197, 64, true}, {2, 2, 80, 2}},
    {{1, 1, 197, 257, 32, false, 2e3}, {3, 3, 96, 3}},
    {{1, 1, 33, 197, 64, false, 1e4, f16}, {1, 1, 208, 1}},
    {{2, 2, 65, 100, 72, true, 1, bf16, true}, {1, 2, 112, 1}},
    {{1, 2, 65, 65, 40, false, 1, bf16, false, true}, {2, 2, 80, 2}},
    {{2, 1, 33, 70, 64, true, 1, f16, false, true}, {1, 1, 48, 2}},
    // Keys shared by a cluster.
    {{1, 2, 100, 197, 32}, {1, 1, 112, 1, 2}},
    {{2, 1, 70, 257, 64, true}, {1, 1, 48, 2, 5}},
    {{1, 1, 150, 197, 80}, {2, 2, 64, 2, 4}},
    {{1, 2, 7, 131, 128, false, 2e3}, {1, 1, 16, 1, 8}},
    {{1, 1, 33, 65, 40, true, 1, bf16, true}, {1, 1, 32, 3, 3}},
    {{1, 2, 100, 197, 32, false, 1, f16, false, true}, {1, 1, 112, 1, 2}},
};

TEST(AttentionSm90, IsRight) {
  for (const Sm90Choice& c : kSm90Choices) {
    SCOPED_TRACE(c.schedule.name());
    emulator::GroupCase group = attention_case(c.problem);
    emulator::expect_emulated(group, by(c.schedule, 1), 90);
    if (HasFailure()) return;
  }
  for (const AttentionSchedule& s :
       std::vector<AttentionSchedule>{{1, 3, 80, 1}, {2, 3, 80, 2}, {2, 2, 32, 2}, {3, 3, 48, 3}}) {
    emulator::GroupCase group = attention_case({2, 3, 150, 70, 40});
    emulator::expect_emulated(group, by(s, 1), 90, 2);
  }
}

TEST(AttentionSm90, TakesMasksOfWindows) {
  for (const int windows : {1, 2, 4}) {
    Problem p{4, 2, 49, 49, 32};
    p.windows = windows;
    emulator::GroupCase group = attention_case(p);
    emulator::expect_emulated(group, kAttentionSm90, 90);
  }
}

TEST(AttentionSm90, TakesAnyLayout) {
  std::mt19937 layouts(5);
  for (int i = 0; i < 4; ++i) {
    emulator::GroupCase group = attention_case({2, 2, 20, 33, 24, i % 2 == 1}, &layouts);
    emulator::expect_emulated(group, kAttentionSm90, 90);
  }
}

TEST(AttentionSm90OnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(90, true); !reason.empty())
    GTEST_SKIP() << reason;
  for (const Sm90Choice& c : kSm90Choices) {
    SCOPED_TRACE(c.schedule.name());
    emulator::GroupCase group = attention_case(c.problem);
    emulator::expect_on_device(group, by(c.schedule));
  }
  for (const Problem& p : std::vector<Problem>{{4, 12, 197, 197, 64},
                                               {1, 16, 257, 257, 80},
                                               {1, 16, 576, 576, 64},
                                               {1, 8, 1050, 1050, 32, false},
                                               {2, 8, 100, 1050, 32, true}}) {
    emulator::GroupCase group = attention_case(p);
    emulator::expect_on_device(group, kAttentionSm90);
  }
}

}  // namespace
}  // namespace tensor::cuda

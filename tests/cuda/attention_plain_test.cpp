// Attention in float32 on the ordinary cores: every head dimension and schedule compiles without
// spills, and is right on the emulator and on a GPU.
#include "src/kernels/cuda/attention/plain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"
#include "tests/cuda/space_testing.h"

namespace tensor::cuda {
namespace {

using emulator::attention_case;
using emulator::AttentionShape;
using emulator::GroupCase;

constexpr int kCapabilities[] = {75, 80, 86, 89, 90, 100, 120};

GroupCase::Lower by(const AttentionPlainSchedule& s) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& on) {
    return lower_attention_plain(laid, group, on, s);
  };
}

AttentionShape shape(std::int64_t batches, std::int64_t heads, std::int64_t queries,
                     std::int64_t keys, std::int64_t depth, bool is_masked = false,
                     double magnitude = 1) {
  return {batches, heads, queries, keys, depth, is_masked, magnitude, f32, true};
}

struct PlainChoice {
  int capability;
  AttentionShape problem;
  AttentionPlainSchedule schedule;
};
// All keys at once and in blocks; slices without any keys; every width of a lane's share of
// queries, keys and results; few and awkward numbers of queries and keys; sums of slices where
// values were.
std::vector<PlainChoice> plain_choices() {
  return {{80, shape(1, 1, 1, 2, 64), {4, 1, 1, 16, 1}},
          {90, shape(1, 2, 1, 197, 64), {4, 1, 8, 32, 1}},
          {90, shape(1, 2, 41, 197, 64), {20, 1, 7, 32, 1}},
          {86, shape(2, 1, 33, 33, 8), {12, 1, 2, 24, 1}},
          {80, shape(1, 2, 31, 65, 24, true), {28, 1, 1, 40, 2}},
          {89, shape(1, 1, 63, 100, 80), {16, 2, 2, 16, 3}},
          {100, shape(1, 2, 20, 130, 128, true), {24, 1, 2, 48, 2}},
          {100, shape(1, 1, 9, 49, 192), {8, 1, 4, 16, 1}},
          {90, shape(1, 1, 17, 33, 256), {16, 1, 2, 16, 2}},
          {90, shape(2, 2, 65, 70, 32, true), {32, 2, 2, 64, 1}},
          {90, shape(1, 1, 40, 257, 40, false, 1e3), {32, 1, 4, 56, 2}},
          {90, shape(1, 1, 130, 30, 8), {32, 4, 2, 16, 1}},
          {75, shape(2, 2, 35, 100, 72, true), {16, 2, 2, 32, 1}},
          {75, shape(1, 1, 7, 40, 96), {8, 1, 2, 24, 1}}};
}

TEST(AttentionPlain, IsRight) {
  for (const PlainChoice& c : plain_choices()) {
    SCOPED_TRACE(c.schedule.name());
    GroupCase group = attention_case(c.problem);
    emulator::expect_emulated(group, by(c.schedule), c.capability);
    if (HasFailure()) return;
  }
}

Tensor random(const Shape& shape, int seed) { return random_tensor(shape, f32, seed); }

// A function of queries, keys and values, of which each has other rows and the last other columns.
GroupCase cross_attention(const std::function<Tensor(const Tensor&, const Tensors&)>& middle,
                          const Tensors& more) {
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor scores = middle(matmul(in[0], swapaxes(in[1], -1, -2)) * 0.2, in);
    return {matmul(softmax(scores, -1), in[2])};
  };
  Tensors in = {random({2, 3, 21, 24}, 1), random({2, 3, 50, 24}, 2), random({2, 3, 50, 40}, 3)};
  in.insert(in.end(), more.begin(), more.end());
  return GroupCase(f, in);
}

// What models add to scores or do to them before the softmax.
TEST(AttentionPlain, TakesMasksAndBiases) {
  const auto expect = [](GroupCase group) {
    for (const int capability : {75, 90}) {
      ASSERT_TRUE(group.accepted(kAttentionPlain, machine(capability)));
      emulator::expect_emulated(group, kAttentionPlain, capability);
    }
  };
  expect(cross_attention([](const Tensor& x, const Tensors&) { return x; }, {}));
  const auto adds = [](const Tensor& x, const Tensors& in) { return x + in[3]; };
  expect(cross_attention(adds, {random({3, 21, 50}, 4)}));    // by the relative position
  expect(cross_attention(adds, {random({2, 1, 1, 50}, 5)}));  // for each key
  Tensor later = zeros({21, 50}, f32);
  for (std::int64_t q = 0; q < 21; ++q)
    for (std::int64_t k = q + 1; k < 50; ++k) later.at<float>(q, k) = -INFINITY;
  expect(cross_attention(adds, {later}));
  Tensor pixels = zeros({2, 1, 1, 50}, boolean);
  for (std::int64_t k = 0; k < 50; ++k) {
    pixels.at<bool>(0, 0, 0, k) = k < 17;
    pixels.at<bool>(1, 0, 0, k) = true;
  }
  expect(cross_attention(
      [](const Tensor& x, const Tensors& in) { return where(in[3], x, full({}, -INFINITY, f32)); },
      {pixels}));
  expect(cross_attention([](const Tensor& x, const Tensors&) { return x * -3.0; }, {}));
}

TEST(AttentionPlain, TakesAnyLayout) {
  std::mt19937 layouts(5);
  for (int i = 0; i < 4; ++i) {
    GroupCase group = attention_case(shape(2, 2, 20, 33, 24, i % 2 == 1), &layouts);
    emulator::expect_emulated(group, kAttentionPlain, i % 2 == 0 ? 75 : 80);
  }
}

// A row of which every score is minus infinity has no softmax, in whichever slice its keys are.
TEST(AttentionPlain, EveryScheduleOfASmallProblemIsRight) {
  GroupCase group = attention_case(shape(2, 2, 3, 60, 16, true));
  const AttentionProblem p = *attention_problem(group.laid().graph, group.group());
  const Space space = attention_plain_space(p, machine(90));
  const std::vector<Schedule> all = space.all();
  EXPECT_GE(all.size(), 15u);
  for (const Schedule& s : all) {
    SCOPED_TRACE(s.text());
    emulator::expect_emulated(group, by(attention_plain_schedule_of(s)), 90, 1);
    if (HasFailure()) return;
  }
}

TEST(AttentionPlain, TakesFloat32Alone) {
  const auto takes = [](const Family& family, DType dtype, std::int64_t depth, int capability) {
    AttentionShape p{1, 2, 20, 33, depth};
    p.dtype = dtype;
    return attention_case(p).accepted(family, machine(capability));
  };
  for (const int capability : kCapabilities) {
    EXPECT_TRUE(takes(kAttentionPlain, f32, 24, capability));
    EXPECT_TRUE(takes(kAttentionPlain, f32, 256, capability));
    EXPECT_FALSE(takes(kAttentionPlain, f32, 264, capability)) << "rows are too wide";
    EXPECT_FALSE(takes(kAttentionPlain, f32, 20, capability)) << "features come in eights";
    EXPECT_FALSE(takes(kAttentionPlain, f16, 24, capability));
    EXPECT_FALSE(takes(kAttentionSm90, f32, 24, capability));
    EXPECT_FALSE(takes(kAttentionMma, f32, 24, capability));
  }
}

TEST(AttentionPlain, RefusesWhatDoesNotFit) {
  const AttentionProblem vit{12, 197, 197, 64, 64, 0, false, 4},
      wide{8, 197, 1000, 256, 256, 0, false, 4};
  const Space space = attention_plain_space(vit, machine(90)),
              older = attention_plain_space(vit, machine(75)),
              of_wide = attention_plain_space(wide, machine(90));
  EXPECT_EQ(fault(space, "plain_rows rows=20 warps=1 slices=7 keys=32 stages=1"), "");
  EXPECT_EQ(fault(space, "plain_rows rows=32 warps=1 slices=4 keys=32 stages=2"), "");
  EXPECT_EQ(fault(space, "plain_rows rows=32 warps=4 slices=3 keys=32 stages=2"),
            "256 threads at most");
  EXPECT_EQ(fault(space, "plain_rows rows=20 warps=1 slices=7 keys=32 stages=2"),
            "one stage where all keys are there at once, or copies wait");
  EXPECT_EQ(fault(space, "plain_rows rows=20 warps=1 slices=4 keys=32 stages=3"),
            "more stages than blocks of keys");
  EXPECT_EQ(fault(space, "plain_rows rows=20 warps=1 slices=8 keys=40 stages=1"),
            "more slices than keys for them");
  EXPECT_EQ(fault(older, "plain_rows rows=20 warps=1 slices=8 keys=16 stages=1"),
            "needs 87424 bytes of shared memory, a block has 65536");
  EXPECT_EQ(fault(of_wide, "plain_rows rows=32 warps=1 slices=1 keys=16 stages=2"),
            "too few registers");
  EXPECT_EQ(fault(attention_plain_space({12, 3, 197, 64, 64, 0, false, 4}, machine(90)),
                  "plain_rows rows=8 warps=1 slices=8 keys=16 stages=2"),
            "more rows than queries");
  EXPECT_EQ(fault(attention_plain_space({12, 16, 197, 64, 64, 0, false, 4}, machine(90)),
                  "plain_rows rows=16 warps=2 slices=4 keys=16 stages=2"),
            "more warps than queries for them");
  EXPECT_EQ(fault(attention_plain_space({12, 16, 9, 64, 64, 0, false, 4}, machine(90)),
                  "plain_rows rows=16 warps=1 slices=1 keys=32 stages=1"),
            "more keys than there are");
}

// More work takes longer, and none is done faster than the GPU multiplies.
TEST(AttentionPlain, TheModelIsPlausible) {
  for (const int capability : kCapabilities) {
    const Machine on = machine(capability);
    double last = 0;
    for (const std::int64_t batches : {1, 12, 128, 768, 3072}) {
      const AttentionProblem p{batches, 197, 197, 64, 64, 0, false, 4};
      const auto schedules = attention_plain_schedules(p, on);
      ASSERT_FALSE(schedules.empty());
      const double time = model_attention_plain(p, schedules.front(), on).total;
      EXPECT_GE(time, last);
      last = time;
      EXPECT_GT(time, 4. * static_cast<double>(batches) * 197 * 197 * 64 / on.f32_tflops / 1e6);
    }
  }
}

// What is chosen for every depth, and what takes the most registers.
TEST(AttentionPlain, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto check = [](const AttentionShape& p, int capability,
                        const AttentionPlainSchedule* wanted) {
    const GroupCase t = attention_case(p);
    const Machine on = machine(capability);
    const AttentionProblem problem = *attention_problem(t.laid().graph, t.group());
    const AttentionPlainSchedule s =
        wanted ? *wanted : attention_plain_schedules(problem, on).front();
    const Lowered lowered = lower_attention_plain(t.laid(), t.group(), on, s);
    ASSERT_EQ(lowered.calls.size(), 1u);
    expect_no_trouble(lowered.calls.back().source, on.device.architecture());
  };
  for (const int capability : kCapabilities)
    for (const std::int64_t depth : {32, 64, 256}) {
      check(shape(2, 6, 65, 197, depth, depth == 32), capability, nullptr);
      check(shape(2, 8, 130, 1050, depth), capability, nullptr);
    }
  for (const int capability : {75, 90})
    for (const std::int64_t depth : {8, 24, 40, 80, 128, 192})
      check(shape(1, 8, 100, 1050, depth, depth == 40), capability, nullptr);
  for (const auto& [depth, keys, s] :
       std::vector<std::tuple<std::int64_t, std::int64_t, AttentionPlainSchedule>>{
           {64, 1050, {32, 1, 8, 16, 2}},
           {64, 1050, {32, 2, 2, 64, 2}},
           {64, 197, {20, 1, 7, 32, 1}},
           {80, 197, {24, 1, 5, 40, 1}},
           {128, 1050, {24, 1, 4, 16, 2}},
           {256, 1050, {16, 1, 2, 16, 2}}})
    check(shape(2, 2, 130, keys, depth, true), 90, &s);
}

// Unless more are asked for, one for each kind of machine and depth.
TEST(AttentionPlain, SchedulesAtRandomCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::mt19937 random(7);
  for (const int capability : kCapabilities)
    for (const std::int64_t depth : {8, 32, 64, 80, 128, 256}) {
      const GroupCase t = attention_case(shape(1, 8, 197, 197, depth, depth == 32));
      const Machine on = machine(capability);
      const AttentionProblem p = *attention_problem(t.laid().graph, t.group());
      const std::size_t count = std::max<std::size_t>(more_schedules(), 1);
      for (const Schedule& s : drawn(attention_plain_space(p, on), count, random)) {
        SCOPED_TRACE(s.text());
        const Lowered lowered =
            lower_attention_plain(t.laid(), t.group(), on, attention_plain_schedule_of(s));
        expect_no_trouble(lowered.calls.back().source, on.device.architecture());
      }
    }
}

TEST(AttentionPlainOnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(80); !reason.empty()) GTEST_SKIP() << reason;
  for (const PlainChoice& c : plain_choices()) {
    if (c.capability < 80) continue;
    SCOPED_TRACE(c.schedule.name());
    GroupCase group = attention_case(c.problem);
    emulator::expect_on_device(group, by(c.schedule));
  }
}

}  // namespace
}  // namespace tensor::cuda

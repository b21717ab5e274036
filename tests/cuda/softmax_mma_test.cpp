// Attention's weights as one kernel: every schedule compiles without spills, and is right on the
// emulator and on a GPU; plans have it where the weights are wanted, and nowhere else.
#include "src/kernels/cuda/attention/softmax_mma.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "tensor/error.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"
#include "tests/cuda/space_testing.h"
#include "tests/families.h"
#include "tests/plans/nine_models.h"
#include "tests/seed.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

constexpr int kAllCapabilities[] = {75, 80, 86, 89, 90, 100, 120};

emulator::GroupCase::Lower softmax_by(const SoftmaxSchedule& s) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& on) {
    return lower_softmax_mma(laid, group, on, s);
  };
}

enum class Middle : std::uint8_t { none, mask, infinite_mask, bias };
enum class After : std::uint8_t { none, narrow, both, scaled_sum };

struct SoftmaxShape {
  std::int64_t batches, heads, queries, keys, depth;
  Middle middle = Middle::none;
  After after = After::narrow;
  DType dtype = f16;
  double scale = 0.125;  // 1: there is none
};

// Heads as the projections of a transformer store them: [batch, tokens, heads, depth].
emulator::GroupCase softmax_case(const SoftmaxShape& p, std::mt19937* layouts = nullptr) {
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    Tensor scores =
        matmul(in[0].transpose({0, 2, 1, 3}), in[1].transpose({0, 2, 3, 1})).astype(f32);
    if (p.scale != 1) scores = scores * p.scale;
    if (p.middle == Middle::bias) scores = scores + in[2];
    if (p.middle == Middle::mask) scores = where(in[2], scores, full({}, -3e38, f32));
    if (p.middle == Middle::infinite_mask) scores = where(in[2], scores, full({}, -INFINITY, f32));
    const Tensor weights = softmax(scores, -1);
    switch (p.after) {
      case After::none:
        return {weights};
      case After::narrow:
        return {weights.astype(p.dtype)};
      case After::both:
        return {weights, weights.astype(p.dtype)};
      case After::scaled_sum:
        return {(weights * 2 + in[p.middle == Middle::none ? 2 : 3].astype(f32)).astype(p.dtype)};
    }
    return {};
  };
  Generator random(check::seed());
  const auto normal = [&](std::int64_t tokens) {
    return random.normal({p.batches, tokens, p.heads, p.depth}).astype(p.dtype);
  };
  Tensors in = {normal(p.queries), normal(p.keys)};
  if (p.middle == Middle::bias) in.push_back(random.normal({p.heads, p.queries, p.keys}));
  if (p.middle == Middle::mask || p.middle == Middle::infinite_mask) {
    // Every third key is masked; of the first image all are.
    Tensor mask = zeros({p.batches, 1, 1, p.keys}, boolean);
    for (std::int64_t b = 1; b < p.batches; ++b)
      for (std::int64_t key = 0; key < p.keys; ++key) mask.at<bool>(b, 0, 0, key) = key % 3 != 0;
    in.push_back(mask);
  }
  if (p.after == After::scaled_sum)
    in.push_back(random.normal({p.batches, p.heads, p.queries, p.keys}).astype(p.dtype));
  return emulator::GroupCase(f, in, layouts);
}

struct SoftmaxChoice {
  int capability;
  SoftmaxShape problem;
  SoftmaxSchedule schedule;
};
// All keys at once and in two passes; one to eight warps with a slab or two; awkward numbers of
// queries, keys and columns; all that may come before and after the softmax.
std::vector<SoftmaxChoice> softmax_choices() {
  return {{80, {1, 1, 1, 2, 64}, {1, 1, 16, 1}},
          {80, {1, 2, 7, 7, 32}, {1, 1, 16, 1}},
          {86, {2, 1, 65, 63, 40, Middle::none, After::none}, {4, 1, 64, 1}},
          {89, {1, 2, 197, 197, 48, Middle::none, After::narrow, bf16}, {4, 1, 208, 1}},
          {90, {1, 1, 65, 257, 80, Middle::none, After::both}, {4, 1, 272, 1}},
          {120, {1, 1, 63, 65, 128, Middle::bias, After::scaled_sum}, {2, 2, 80, 1}},
          {100, {2, 1, 20, 100, 96, Middle::mask, After::both, bf16}, {2, 1, 112, 1}},
          {80, {2, 2, 33, 64, 64, Middle::infinite_mask, After::none}, {2, 1, 64, 1}},
          {80, {1, 1, 40, 577, 64, Middle::none, After::narrow}, {2, 1, 96, 2}},
          {90, {2, 1, 65, 300, 72, Middle::mask, After::none, bf16}, {4, 1, 80, 3}},
          {80, {1, 2, 70, 197, 64, Middle::bias, After::scaled_sum, bf16}, {2, 2, 64, 4}},
          {90, {2, 1, 33, 150, 32, Middle::infinite_mask, After::both}, {2, 1, 48, 2}},
          {80, {1, 1, 20, 130, 24, Middle::none, After::none, f16, -0.3}, {1, 1, 32, 2}},
          {80, {1, 1, 20, 33, 20, Middle::none, After::narrow, f16, 1}, {1, 1, 48, 1}},
          {75, {2, 1, 33, 65, 72, Middle::mask, After::narrow}, {2, 1, 80, 1}},
          {75, {1, 1, 40, 257, 40, Middle::none, After::both}, {2, 2, 64, 1}}};
}

TEST(SoftmaxMma, IsRight) {
  for (const SoftmaxChoice& c : softmax_choices()) {
    SCOPED_TRACE(c.schedule.name() + " of " + std::to_string(c.problem.keys));
    emulator::GroupCase group = softmax_case(c.problem);
    emulator::expect_emulated(group, softmax_by(c.schedule), c.capability);
    if (HasFailure()) return;
  }
}

TEST(SoftmaxMma, TakesAnyLayout) {
  std::mt19937 layouts(static_cast<unsigned>(check::seed()));
  for (const Middle middle : {Middle::none, Middle::bias}) {
    emulator::GroupCase group =
        softmax_case({2, 2, 20, 33, 24, middle, After::scaled_sum}, &layouts);
    emulator::expect_emulated(group, kSoftmaxMma, middle == Middle::none ? 75 : 90);
  }
}

TEST(SoftmaxMma, TakesWhatItsGpuHas) {
  for (const int capability : kAllCapabilities)
    for (const DType dtype : {f16, bf16, f32})
      EXPECT_EQ(softmax_case({1, 2, 20, 33, 24, Middle::none, After::none, dtype})
                    .accepted(kSoftmaxMma, machine(capability)),
                dtype == f16 || (dtype == bf16 && capability >= 80));
}

// What reads scores besides the softmax, what comes after it and is no element's, more columns than
// the scores have registers for, and the weights of a dense layer.
TEST(SoftmaxMma, LeavesOtherGroupsAlone) {
  const auto takes = [](const TensorFunction& f, std::int64_t depth = 64) {
    return emulator::GroupCase(
               f, {random_tensor({2, 33, depth}, f16, 1), random_tensor({2, depth, 65}, f16, 2)})
        .accepted(kSoftmaxMma, machine(80));
  };
  const auto weights = [](const Tensors& in) {
    return softmax(matmul(in[0], in[1]).astype(f32), -1);
  };
  EXPECT_TRUE(takes([=](const Tensors& in) -> Tensors { return {weights(in)}; }));
  EXPECT_TRUE(takes([=](const Tensors& in) -> Tensors { return {weights(in)}; }, 128));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors { return {weights(in)}; }, 136));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors {
    const Tensor scores = matmul(in[0], in[1]).astype(f32);
    return {softmax(scores, -1), scores};
  }));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors {
    const Tensor scores = matmul(in[0], in[1]).astype(f32);
    return {softmax(scores, -1) * scores};
  }));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors {
    const Tensor scores = matmul(in[0], in[1]).astype(f32);
    return {softmax(scores, -1).reshape({-1}) * scores.reshape({-1})};
  }));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors {
    return {softmax(matmul(in[0], in[1]).astype(f32), -2)};
  }));
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors { return {sum(weights(in), {-1})}; }));
  const Tensor dense = random_tensor({64, 10}, f16, 3);
  EXPECT_FALSE(takes([=](const Tensors& in) -> Tensors {
    return {softmax(matmul(in[0], dense).astype(f32), -1)};
  }));
}

// More work takes longer, and none is done faster than memory takes the weights.
TEST(SoftmaxMma, TheModelIsPlausible) {
  for (const int capability : kAllCapabilities)
    for (const std::int64_t keys : {197, 1050}) {
      const Machine on = machine(capability);
      double last = 0;
      for (const std::int64_t batches : {1, 12, 128, 768}) {
        const SoftmaxProblem p{batches, 197, keys, 64, {}, {0, 2, 1}};
        const auto schedules = softmax_mma_schedules(p, on);
        ASSERT_FALSE(schedules.empty());
        const double time = model_softmax_mma(p, schedules.front(), on).total;
        EXPECT_GE(time, last);
        last = time;
        EXPECT_GT(time, 2. * static_cast<double>(batches * 197 * keys) / on.memory_gbps / 1e3);
      }
    }
}

// What is chosen, and what takes the most registers, for every architecture.
TEST(SoftmaxMma, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto compile = [&](const SoftmaxShape& p, int capability, const SoftmaxSchedule* wanted) {
    const emulator::GroupCase t = softmax_case(p);
    const Machine on = machine(capability);
    const SoftmaxProblem problem = *softmax_problem(t.laid().graph, t.group());
    const SoftmaxSchedule s = wanted ? *wanted : softmax_mma_schedules(problem, on).front();
    SCOPED_TRACE(s.name());
    const Lowered lowered = lower_softmax_mma(t.laid(), t.group(), on, s);
    expect_no_trouble(lowered.calls.back().source, on.device.architecture());
  };
  for (const int capability : kAllCapabilities) {
    compile({2, 6, 65, 197, 64}, capability, nullptr);
    compile({2, 8, 130, 1050, 80, Middle::mask, After::both}, capability, nullptr);
    compile({2, 2, 130, 256, 128, Middle::bias, After::scaled_sum}, capability, nullptr);
  }
  for (const auto& [depth, keys, s] :
       std::vector<std::tuple<std::int64_t, std::int64_t, SoftmaxSchedule>>{
           {128, 257, {8, 1, 272, 1}},
           {64, 120, {4, 2, 128, 1}},
           {128, 120, {8, 2, 128, 1}},
           {64, 1050, {4, 2, 80, 2}},
           {128, 1050, {8, 1, 208, 2}},
           {32, 1050, {4, 1, 256, 2}},
           {40, 1050, {4, 2, 80, 2}}})
    for (const int capability : {80, 90, 120}) {
      const SoftmaxShape p{2, 2, 130, keys, depth, Middle::mask, After::scaled_sum};
      const emulator::GroupCase t = softmax_case(p);
      if (softmax_problem(t.laid().graph, t.group())->fault(s, machine(capability)).empty())
        compile(p, capability, &s);
    }
}

// ---- The space.

TEST(SoftmaxMma, SpaceHasWholeRowsWhereRegistersHoldThem) {
  using Names = std::set<std::string>;
  const SoftmaxProblem vit{12, 197, 197, 64, {}, {}}, detr{8, 1050, 1050, 32, {}, {}},
      few{12, 33, 14, 64, {}, {}};
  for (const int capability : {75, 80, 90, 120}) {
    EXPECT_EQ(sketches_of(softmax_mma_space(vit, machine(capability))),
              (Names{"whole_rows_mma", "online_mma"}));
    EXPECT_EQ(sketches_of(softmax_mma_space(detr, machine(capability))), Names{"online_mma"});
    EXPECT_EQ(sketches_of(softmax_mma_space(few, machine(capability))), Names{"whole_rows_mma"});
  }
  const Space space = softmax_mma_space(vit, machine(90)),
              older = softmax_mma_space(vit, machine(75));
  EXPECT_EQ(fault(space, "whole_rows_mma warps=4 slabs=1 block=208 stages=1"), "");
  EXPECT_EQ(fault(space, "whole_rows_mma warps=4 slabs=2 block=208 stages=1"), "too few registers");
  EXPECT_EQ(fault(space, "online_mma warps=4 slabs=1 block=112 stages=3"), "");
  EXPECT_EQ(fault(older, "online_mma warps=4 slabs=1 block=64 stages=1"), "");
  EXPECT_EQ(fault(softmax_mma_space({12, 33, 300, 64, {}, {}}, machine(80)),
                  "online_mma warps=4 slabs=1 block=64 stages=2"),
            "more warps than queries for them");
}

Sample sample(const std::string& name, std::int64_t queries, std::int64_t keys, DType dtype,
              int capability) {
  return {name,
          &kSoftmaxMma,
          [](const Tensors& in) -> Tensors {
            const Tensor scores = matmul(in[0], swapaxes(in[1], -1, -2)).astype(f32) * 0.125;
            return {softmax(scores, -1).astype(in[0].dtype())};
          },
          {random_tensor({1, 2, queries, 64}, dtype, 3), random_tensor({1, 2, keys, 64}, dtype, 4)},
          4,
          capability};
}

TEST(SoftmaxMma, SchedulesAtRandomAreRight) {
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  for (const Sample& s :
       {sample("whole rows", 70, 60, bf16, 90), sample("two passes", 40, 300, f16, 80),
        sample("older", 40, 100, f16, 75)}) {
    expect_right_at_random(s, 2, random);
    expect_falls_back(s);
    if (HasFailure()) return;
  }
}

// Every schedule of the space is a kernel.
TEST(SoftmaxMma, EveryScheduleLowers) {
  const Sample s = sample("two passes and whole rows", 130, 197, f16, 90);
  const emulator::GroupCase group(s.function, s.inputs);
  const auto space = space_of(kSoftmaxMma, group.laid(), group.group(), s.machine());
  ASSERT_TRUE(space);
  ASSERT_GT(space->size(), 0);
  for (const Schedule& schedule : space->all())
    EXPECT_EQ(lower_with(kSoftmaxMma, group.laid(), group.group(), schedule.text(), s.machine())
                  .calls.size(),
              1u);
}

TEST(SoftmaxMma, SchedulesAtRandomCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  constexpr int kSpilled = 16;  // as for other families (space_mma_test.cpp)
  std::mt19937 random(7);
  for (const int capability : kAllCapabilities)
    for (const SoftmaxShape& p : {SoftmaxShape{1, 8, 300, 260, 64},
                                  {1, 8, 300, 112, 128, Middle::bias},
                                  {1, 8, 300, 1050, 32, Middle::mask, After::scaled_sum}}) {
      const emulator::GroupCase t = softmax_case(p);
      const Machine on = machine(capability);
      const auto space = space_of(kSoftmaxMma, t.laid(), t.group(), on);
      ASSERT_TRUE(space);
      const Isolated alone = isolate(t.laid(), t.group());
      for (const Schedule& s : drawn(*space, std::max<std::size_t>(more_schedules(), 1), random))
        expect_compiles(kSoftmaxMma, alone, s, on, kSpilled);
    }
}

// ---- Plans.

// Which kernels a function on [batch, heads, tokens, depth] becomes.
std::vector<std::string> kernels_of(const TensorFunction& f, const Tensors& in, int capability) {
  const emulator::Planned plan(f, in, {.dtype = f16}, machine(capability));
  std::vector<std::string> kernels;
  for (const Lowered& lowered : plan.lowered) kernels.push_back(lowered.description);
  return kernels;
}
int count(const std::vector<std::string>& kernels, const std::string& part) {
  return static_cast<int>(std::count_if(kernels.begin(), kernels.end(), [&](const auto& kernel) {
    return kernel.find(part) != std::string::npos;
  }));
}

TEST(SoftmaxMma, IsPlannedWhereWeightsAreWanted) {
  const auto heads = [](int seed) { return random_tensor({2, 12, 197, 64}, f16, seed); };
  const Tensors in = {heads(1), heads(2), heads(3)};
  const auto weights = [](const Tensors& x) {
    return softmax(matmul(x[0], swapaxes(x[1], -1, -2)) * 0.125, -1);
  };
  for (const int capability : {75, 80, 90}) {
    SCOPED_TRACE(capability);
    const auto alone =
        kernels_of([=](const Tensors& x) -> Tensors { return {weights(x)}; }, in, capability);
    EXPECT_EQ(count(alone, "softmax_mma"), 1) << ::testing::PrintToString(alone);
    EXPECT_EQ(alone.size(), 1u) << ::testing::PrintToString(alone);
    const auto both = kernels_of(
        [=](const Tensors& x) -> Tensors {
          const Tensor w = weights(x);
          return {matmul(w, x[2]), w};
        },
        in, capability);
    EXPECT_EQ(count(both, "softmax_mma"), 1) << ::testing::PrintToString(both);
    EXPECT_EQ(count(both, "gemm"), 1) << ::testing::PrintToString(both);
    EXPECT_EQ(both.size(), 2u) << ::testing::PrintToString(both);
    const auto attention = kernels_of(
        [=](const Tensors& x) -> Tensors { return {matmul(weights(x), x[2])}; }, in, capability);
    EXPECT_EQ(count(attention, "attention"), 1) << ::testing::PrintToString(attention);
    EXPECT_EQ(attention.size(), 1u) << ::testing::PrintToString(attention);
  }
}

// Where nothing else reads the weights, attention wins.
TEST(SoftmaxMma, TheNineModelsDoWithout) {
  for (const int capability : {80, 90})
    for (const auto& [name, model] : nine::nine_models(nine::on_gpu(f16, capability)))
      for (const Group& group :
           fuse(propose_parallel(model()), cuda_cost(machine(capability))).groups)
        EXPECT_NE(cuda_families()[static_cast<std::size_t>(group.family)].name, kSoftmaxMma.name)
            << name << " on sm_" << capability;
}

TEST(SoftmaxMma, PlansWithItAreRight) {
  const auto heads = [](int seed) { return random_tensor({1, 2, 65, 32}, f32, seed); };
  const TensorFunction f = [](const Tensors& x) -> Tensors {
    const Tensor w = softmax(matmul(x[0], swapaxes(x[1], -1, -2)) * 0.125, -1);
    return {matmul(w, x[2]), w};
  };
  for (const int capability : {80, 90})
    emulator::expect_plan_emulated(f, {heads(1), heads(2), heads(3)}, {.dtype = f16}, capability);
}

TEST(SoftmaxMmaOnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(80); !reason.empty()) GTEST_SKIP() << reason;
  for (const SoftmaxChoice& c : softmax_choices()) {
    if (c.capability < 80) continue;
    SCOPED_TRACE(c.schedule.name());
    emulator::GroupCase group = softmax_case(c.problem);
    emulator::expect_on_device(group, softmax_by(c.schedule));
  }
}

}  // namespace
}  // namespace tensor::cuda

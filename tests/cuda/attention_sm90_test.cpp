// Attention on Hopper: every head dimension and schedule compiles without spills, and is right on
// the emulator and on a GPU.
#include "src/kernels/cuda/attention_sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "src/trace/trace.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/cuda/on_device.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

Machine h200() { return machine_of(typical_device(90)); }

struct Problem {
  std::int64_t batches, heads, queries, keys, depth;
  bool is_masked = false;
  double magnitude = 1;  // of queries
  DType dtype = bf16;
  bool is_wide = false;  // the result is float32
};

// Heads as the projections of a transformer store them: [batch, tokens, heads, depth].
emulator::GroupCase attention_case(const Problem& p, std::mt19937* layouts = nullptr) {
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor q = in[0].transpose({0, 2, 1, 3}), k = in[1].transpose({0, 2, 3, 1}),
                 v = in[2].transpose({0, 2, 1, 3});
    Tensor scores = matmul(q, k).astype(f32) * (1 / std::sqrt(double(p.depth)));
    if (p.is_masked) scores = where(in[3], scores, full({}, -3e38, f32));
    const Tensor sums = matmul(softmax(scores, -1).astype(p.dtype), v).astype(f32);
    return {p.is_wide ? sums : sums.astype(p.dtype)};
  };
  Generator random(11);
  const auto normal = [&](std::int64_t tokens, double scale) {
    return (random.normal({p.batches, tokens, p.heads, p.depth}) * scale).astype(p.dtype);
  };
  Tensors in = {normal(p.queries, p.magnitude), normal(p.keys, 1), normal(p.keys, 1)};
  // Every third key is masked; of the first image all are.
  if (p.is_masked) {
    Tensor mask = zeros({p.batches, 1, 1, p.keys}, boolean);
    for (std::int64_t b = 1; b < p.batches; ++b)
      for (std::int64_t key = 0; key < p.keys; ++key) mask.at<bool>(b, 0, 0, key) = key % 3 != 0;
    in.push_back(mask);
  }
  return emulator::GroupCase(f, in, layouts);
}

// `processors`: fewer than there are, so that a block has several heads.
emulator::GroupCase::Lower by(const AttentionSchedule& s, int processors = 0) {
  return [=](const LaidOutGraph& laid, const Group& group, Machine machine) {
    if (processors > 0) machine.device.multiprocessors = processors;
    return lower_attention_sm90(laid, group, machine, s);
  };
}

TEST(AttentionSm90, CompilesWithoutSpills) {
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto check = [&](const Problem& p, const AttentionSchedule& s) {
    const emulator::GroupCase t = attention_case(p);
    const Lowered lowered = lower_attention_sm90(t.laid(), t.group(), h200(), s);
    ASSERT_EQ(lowered.calls.size(), 1u);
    const Call& call = lowered.calls.back();
    const std::string log = compiler->compile(call.source, "sm_90a").log;
    EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << call.entry << '\n'
        << log;
    EXPECT_EQ(log.find("C75"), std::string::npos) << call.entry << '\n' << log;
  };
  for (const std::int64_t depth : {32, 40, 48, 64, 72, 80, 96, 128}) {
    check({2, 2, 65, 197, depth}, {1, 1, 208, 1});
    check({2, 2, 65, 257, depth, depth == 80}, {1, 2, 272, 1});
    check({2, 2, 130, 1050, depth, depth == 32}, {2, 2, depth > 64 ? 128 : 176, 2});
  }
  check({2, 12, 197, 197, 64}, {2, 4, 208, 2});
  check({2, 12, 197, 576, 64}, {3, 3, 96, 2});
}

// Up to 272 keys are held at once, more come in large blocks (measured: small ones take twice as
// long).
TEST(AttentionSm90, ChoosesLargeBlocks) {
  const auto best = [](std::int64_t heads, std::int64_t queries, std::int64_t keys,
                       std::int64_t depth) {
    return attention_sm90_schedules({heads, queries, keys, depth, depth}, h200()).front();
  };
  EXPECT_EQ(best(12, 197, 197, 64).block, 208);
  EXPECT_EQ(best(768, 197, 197, 64).block, 208);
  EXPECT_EQ(best(16, 257, 257, 80).block, 272);
  EXPECT_GE(best(16, 577, 577, 64).block, 176);
  EXPECT_GE(best(8, 1050, 1050, 32).block, 176);
  EXPECT_GE(best(8, 100, 1050, 32).block, 176);
}

struct Choice {
  Problem problem;
  AttentionSchedule schedule;
};
// All keys at once and in blocks; groups with a tile each, several or none; every depth.
const std::vector<Choice> kChoices = {
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
};

TEST(AttentionSm90, IsRight) {
  for (const Choice& c : kChoices) {
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
  for (const Choice& c : kChoices) {
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

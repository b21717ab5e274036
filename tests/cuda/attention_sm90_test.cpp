// Attention on Hopper: every head dimension and schedule compiles without spills.
#include "src/kernels/cuda/attention_sm90.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/kernels/cuda/families.h"
#include "src/trace/trace.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

Machine h200() { return machine_of(typical_device(90)); }

struct Traced {
  LaidOutGraph laid;
  Group group;
};

// Heads as the projections of a transformer store them: [batch, tokens, heads, depth].
Traced traced(std::int64_t heads, std::int64_t queries, std::int64_t keys, std::int64_t depth,
              bool is_masked, DType dtype = bf16) {
  const auto f = [=](const Tensors& in) -> Tensors {
    const Tensor q = in[0].transpose({0, 2, 1, 3}), k = in[1].transpose({0, 2, 3, 1}),
                 v = in[2].transpose({0, 2, 1, 3});
    Tensor scores = matmul(q, k).astype(f32) * (1 / std::sqrt(double(depth)));
    if (is_masked) scores = scores + in[3];
    return {matmul(softmax(scores, -1).astype(dtype), v).astype(f32).astype(dtype)};
  };
  std::vector<TensorType> types = {{{2, queries, heads, depth}, dtype},
                                   {{2, keys, heads, depth}, dtype},
                                   {{2, keys, heads, depth}, dtype}};
  if (is_masked) types.push_back({{2, 1, 1, keys}, f32});
  Traced t{lay_out(trace(f, types)), {}};
  std::vector<ValueId> nodes;
  for (ValueId id = 0; id < t.laid.graph.size(); ++id)
    if (is_compute(t.laid.graph, id)) nodes.push_back(id);
  t.group = make_group(t.laid.graph, wiring(t.laid.graph), nodes);
  return t;
}

TEST(AttentionSm90, CompilesWithoutSpills) {
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto check = [&](const Traced& t, const AttentionSchedule& s) {
    const Lowered lowered = lower_attention_sm90(t.laid, t.group, h200(), s);
    ASSERT_EQ(lowered.calls.size(), 1u);
    const Call& call = lowered.calls.back();
    const std::string log = compiler->compile(call.source, "sm_90a").log;
    EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
        << call.entry << '\n'
        << log;
    EXPECT_EQ(log.find("C75"), std::string::npos) << call.entry << '\n' << log;
  };
  for (const std::int64_t depth : {32, 40, 48, 64, 72, 80, 96, 128}) {
    check(traced(2, 65, 197, depth, false), {1, 1, 208, 1});
    check(traced(2, 65, 257, depth, depth == 80), {1, 2, 272, 1});
    check(traced(2, 130, 1050, depth, depth == 32), {2, 2, depth > 64 ? 128 : 176, 2});
  }
  check(traced(12, 197, 197, 64, false), {2, 4, 208, 2});
  check(traced(12, 197, 576, 64, false), {3, 3, 96, 2});
}

}  // namespace
}  // namespace tensor::cuda

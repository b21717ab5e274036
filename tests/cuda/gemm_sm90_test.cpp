// The Hopper product: every schedule compiles without spills for what is fused to products.
#include "src/kernels/cuda/gemm_sm90.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/kernels/cuda/families.h"
#include "src/trace/trace.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/emulator/group_case.h"

namespace tensor::cuda {
namespace {

using Tensors = std::vector<Tensor>;

// A small set that covers: both orientations, one to three groups, odd numbers of column blocks.
const std::vector<GemmSchedule> kSchedules = {
    {104, 64, 4, 1, 1, true},   {200, 64, 3, 1, 1, true},         {72, 128, 4, 2, 1, true},
    {8, 64, 2, 1, 1, true},     {144, 192, 3, 3, 1, true},        {64, 64, 4, 1, 1, false},
    {128, 128, 5, 2, 1, false}, {128, 256, 4, 2, 1, false},       {192, 128, 3, 3, 1, false},
    {64, 256, 2, 1, 1, false},  {128, 128, 5, 2, 2, false, true}, {256, 128, 3, 2, 2, false}};

Machine h200() { return machine_of(typical_device(90)); }

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
  const Tensor w = constant({features, depth}, dtype).transpose(), bias = constant({features}, f32);
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
       {x, residual}}};
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

TEST(GemmSm90, SchedulesAreCheckedBeforeTheyAreBuilt) {
  const auto fault = [](GemmSchedule s) { return s.fault(232448, true); };
  for (const GemmSchedule& s : kSchedules) EXPECT_EQ(fault(s), "") << s.name();
  EXPECT_EQ(fault({128, 64, 4, 1, 1, false}), "the side of the rows has 64 for each block");
  EXPECT_EQ(fault({100, 64, 4, 1, 1, true}), "8 to 256 columns in steps of 8");
  EXPECT_EQ(fault({64, 72, 4, 1, 1, false}), "features in panels of 64");
  EXPECT_EQ(fault({64, 64, 1, 1, 1, false}), "at least two stages");
  EXPECT_EQ(fault({128, 256, 5, 2, 1, false}),
            "needs 279552 bytes of shared memory, a block has 232448");
}

TEST(GemmSm90, CompilesWithoutSpills) {
  const Compiler* compiler = nullptr;
  try {
    compiler = &Compiler::get();
  } catch (const UserError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto all = cases(197, 320, 192, bf16);
  for (const Case& c : all) {
    const Traced t = traced(c);
    for (const GemmSchedule& s : kSchedules) {
      // What takes most registers with every schedule, the rest with two.
      if (c.name != "both" && s.tokens != 104 && s.features != 256) continue;
      const Lowered lowered = lower_gemm_sm90(t.laid, t.group, h200(), s);
      const Call& call = lowered.calls.back();
      const std::string log = compiler->compile(call.source, "sm_90a").log;
      EXPECT_NE(log.find("0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
          << call.entry << '\n'
          << log;
      EXPECT_EQ(log.find("C75"), std::string::npos) << call.entry << '\n' << log;
    }
  }
}

// Every schedule on the emulator, of awkward numbers of tokens in turn: what is stored as it comes,
// and with all that may be fused.
TEST(GemmSm90, IsRight) {
  Generator random(3);
  const auto normal = [&](const Shape& shape, DType dtype) {
    return random.normal(shape).astype(dtype);
  };
  const Tensor w = normal({136, 72}, f16), bias = normal({136}, f32);
  const TensorFunction plain = [&](const Tensors& in) -> Tensors {
    return {matmul(in[0], w.transpose())};
  };
  const TensorFunction fused = [&](const Tensors& in) -> Tensors {
    const Tensor sum = matmul(in[0], w.transpose()).astype(f32) + bias + in[1];
    return {sum, gelu(sum).astype(f16)};
  };
  constexpr std::int64_t kTokens[] = {1, 7, 63, 65, 197, 257};
  for (std::size_t i = 0; i < kSchedules.size(); ++i) {
    const GemmSchedule& s = kSchedules[i];
    const auto lower = [&](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
      return lower_gemm_sm90(laid, group, machine, s);
    };
    for (const std::size_t turn : {0, 1, 3}) {
      const std::int64_t tokens = kTokens[(i + turn) % 6];
      SCOPED_TRACE(s.name() + " of " + std::to_string(tokens) + " tokens");
      const Tensor x = normal({tokens, 72}, f16), residual = normal({tokens, 136}, f32);
      emulator::GroupCase group =
          turn == 1 ? emulator::GroupCase(plain, {x}) : emulator::GroupCase(fused, {x, residual});
      emulator::expect_emulated(group, lower, 90);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tensor::cuda

// Products on registers, by mma.sync (tf32 as well) and in plain float32: right on the emulator for
// factors that lie in any way, and compiled without spills for every architecture.
#include "src/kernels/cuda/gemm/mma.h"

#include <gtest/gtest.h>

#include "src/kernels/cuda/families.h"
#include "src/trace/passes/cast.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/on_device.h"

namespace tensor::cuda {
namespace {

using emulator::expect_emulated;
using emulator::GroupCase;
using emulator::Tensors;

// Every arrangement of warps; with and without parts, two to four stages.
const std::vector<TileSchedule> kMma = {
    {128, 128, 2, 4, 1, 4}, {128, 64, 4, 2, 1, 3}, {64, 128, 2, 4, 2, 4},
    {64, 64, 2, 2, 1, 2},   {64, 32, 4, 1, 3, 3},  {32, 64, 2, 2, 1, 4},
    {32, 32, 2, 1, 2, 2},   {16, 64, 1, 4, 1, 4},  {16, 128, 1, 4, 2, 4}};
const std::vector<TileSchedule> kPlain = {{128, 128, 4, 1, 1, 3, 1}, {128, 128, 4, 2, 2, 3, 1},
                                          {64, 128, 2, 2, 1, 4, 2},  {64, 64, 2, 1, 1, 3, 2},
                                          {32, 128, 1, 1, 3, 3, 4},  {64, 32, 2, 1, 1, 2, 1},
                                          {32, 64, 1, 1, 1, 3, 4},   {32, 32, 2, 1, 1, 3, 2},
                                          {16, 64, 1, 2, 1, 3, 4},   {16, 32, 1, 1, 2, 2, 8}};
constexpr std::int64_t kRows[] = {1, 7, 63, 65, 197, 257};

Tensor normal(const Shape& shape, DType dtype) {
  static Generator random(11);
  return random.normal(shape).astype(dtype);
}

using GraphPass = Graph (*)(const Graph&);

GroupCase::Lower with(const TileSchedule& schedule, bool is_plain) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
    return is_plain ? lower_gemm_plain(laid, group, machine, schedule)
                    : lower_gemm_mma(laid, group, machine, schedule);
  };
}

// A linear layer with what may follow it, and its smallest form.
GroupCase linear(std::int64_t rows, std::int64_t n, std::int64_t k, DType dtype, bool is_fused,
                 GraphPass pass = nullptr) {
  const Tensor w = normal({n, k}, dtype), bias = normal({n}, f32);
  const Tensor x = normal({rows, k}, dtype);
  if (!is_fused)
    return GroupCase([=](const Tensors& in) -> Tensors { return {matmul(in[0], w.transpose())}; },
                     {x}, nullptr, pass);
  return GroupCase(
      [=](const Tensors& in) -> Tensors {
        const Tensor sum = matmul(in[0], w.transpose()).astype(f32) + bias + in[1];
        return {sum, gelu(sum).astype(dtype)};
      },
      {x, normal({rows, n}, f32)}, nullptr, pass);
}

TEST(GemmMma, EveryScheduleIsRight) {
  for (std::size_t i = 0; i < kMma.size(); ++i) {
    const bool is_fused = i % 2 == 0;
    const std::int64_t n = i % 3 == 0 ? 91 : 136;
    GroupCase group = linear(kRows[i % 6], n, 200, i % 3 == 1 ? bf16 : f16, is_fused);
    SCOPED_TRACE(kMma[i].name());
    expect_emulated(group, with(kMma[i], false), 80);
    if (HasFailure()) return;
  }
}

TEST(GemmMma, OlderAndNewerGpusAreRight) {
  for (const int capability : {75, 90, 120})
    for (const std::int64_t rows : {7, 197}) {
      // The odd depth: one factor is gathered by elements, the constant one is packed.
      GroupCase group = linear(rows, 72, rows == 7 ? 77 : 264, f16, rows == 7);
      SCOPED_TRACE(capability);
      expect_emulated(group, with({64, 64, 2, 2, 1, 3}, false), capability);
    }
}

struct Arrangement {
  std::string name;
  TensorFunction f;
  std::vector<Shape> inputs;
};

// Factors that lie in other ways.
std::vector<Arrangement> arrangements() {
  const auto product = [](auto left, auto right) {
    return [=](const Tensors& in) -> Tensors { return {matmul(left(in[0]), right(in[1]))}; };
  };
  const auto as_is = [](const Tensor& x) { return x; };
  const auto turned = [](const Tensor& x) { return x.swapaxes(-1, -2); };
  const auto heads = [](const Tensor& x) {  // [tokens, 3 * 16] to [3, tokens, 16]
    return x.reshape({x.shape(0), 3, 16}).transpose({1, 0, 2});
  };
  return {{"both as they are", product(as_is, as_is), {{65, 72}, {72, 40}}},
          {"left turned", product(turned, as_is), {{72, 64}, {72, 40}}},
          {"both turned", product(turned, turned), {{72, 65}, {41, 72}}},
          {"heads",
           product(heads, [=](const Tensor& x) { return turned(heads(x)); }),
           {{63, 48}, {70, 48}}},
          {"values", product(as_is, heads), {{3, 63, 70}, {70, 48}}},
          {"broadcast right", product(as_is, as_is), {{2, 3, 7, 24}, {3, 24, 17}}},
          {"broadcast left", product(as_is, as_is), {{7, 24}, {5, 24, 8}}},
          {"shared right", product(as_is, as_is), {{4, 7, 24}, {24, 16}}},
          {"one row", product(as_is, as_is), {{1, 40}, {40, 33}}},
          {"one feature", product(as_is, as_is), {{40, 33}, {33, 1}}},
          {"one of depth", product(as_is, as_is), {{20, 1}, {1, 30}}},
          {"slices",
           [](const Tensors& in) -> Tensors {
             return {matmul(in[0](slice(3, 40), slice(8, 40)), in[1](slice(1, 33), slice(2, 20)))};
           },
           {{50, 64}, {40, 32}}}};
}

Tensors inputs_of(const Arrangement& c, DType dtype) {
  Tensors inputs;
  for (const Shape& shape : c.inputs) inputs.push_back(normal(shape, dtype));
  return inputs;
}

TEST(GemmMma, FactorsLieInAnyWay) {
  std::mt19937 random(5);
  int turn = 0;
  for (const Arrangement& c : arrangements())
    for (const bool is_random : {false, true}) {
      GroupCase group(c.f, inputs_of(c, f16), is_random ? &random : nullptr);
      SCOPED_TRACE(c.name + (is_random ? ", any strides" : ""));
      expect_emulated(group, with({32, 32, 2, 1, 1, 3}, false), turn++ % 3 == 0 ? 75 : 80);
    }
}

// Float32 rounded to tf32.
TEST(GemmTf32, EveryScheduleIsRight) {
  for (std::size_t i = 0; i < kMma.size(); ++i) {
    GroupCase group =
        linear(kRows[i % 6], i % 3 == 0 ? 91 : 136, 104, f32, i % 2 == 0, round_products);
    SCOPED_TRACE(kMma[i].name());
    expect_emulated(group, with(kMma[i], false), i % 2 ? 90 : 80);
    if (HasFailure()) return;
  }
}

TEST(GemmTf32, FactorsLieInAnyWay) {
  std::mt19937 random(8);
  for (const Arrangement& c : arrangements())
    for (const bool is_random : {false, true}) {
      GroupCase group(c.f, inputs_of(c, f32), is_random ? &random : nullptr, round_products);
      SCOPED_TRACE(c.name + (is_random ? ", any strides" : ""));
      expect_emulated(group, with({32, 32, 2, 1, 1, 3}, false), 80);
    }
}

// It is no more exact than its operands: a test that bounds of float32 would pass proves nothing.
TEST(GemmTf32, IsLessExactThanFloat32) {
  GroupCase rounded = linear(7, 64, 200, f32, false, round_products),
            exact = linear(7, 64, 200, f32, false);
  const auto bounds = [](GroupCase& group) {
    return group.reference().at(group.group().writes[0]).bounds[0];
  };
  EXPECT_GT(bounds(rounded), 100 * bounds(exact));
  EXPECT_LT(bounds(rounded), 0.1 * std::sqrt(200));
}

TEST(GemmPlain, EveryScheduleIsRight) {
  for (std::size_t i = 0; i < kPlain.size(); ++i) {
    GroupCase group =
        linear(kRows[(i + 2) % 6], i % 3 == 0 ? 91 : 136, 200, i == 3 ? bf16 : f32, i % 2 == 0);
    SCOPED_TRACE(kPlain[i].name());
    const bool is_older =
        i % 2 && impossible(kPlain[i], Multiplier::plain, machine_of(typical_device(75))).empty();
    expect_emulated(group, with(kPlain[i], true), is_older ? 75 : 80);
    if (HasFailure()) return;
  }
}

TEST(GemmPlain, FactorsLieInAnyWay) {
  std::mt19937 random(6);
  for (const Arrangement& c : arrangements()) {
    GroupCase group(c.f, inputs_of(c, f32), &random);
    SCOPED_TRACE(c.name);
    expect_emulated(group, kGemmPlain, 80);
  }
}

TEST(GemmMma, FamiliesTakeWhatTheirGpuHas) {
  const auto takes = [](const Family& family, DType dtype, int capability) {
    return linear(64, 64, 64, dtype, false)
        .accepted(family, machine_of(typical_device(capability)));
  };
  EXPECT_TRUE(takes(kGemmMma, f16, 75));
  EXPECT_FALSE(takes(kGemmMma, bf16, 75));
  EXPECT_TRUE(takes(kGemmPlain, bf16, 75));
  EXPECT_TRUE(takes(kGemmMma, bf16, 80));
  EXPECT_FALSE(takes(kGemmPlain, f16, 80));
  EXPECT_FALSE(takes(kGemmMma, f16, 90)) << "Hopper multiplies those by wgmma";
  EXPECT_TRUE(takes(kGemmPlain, f32, 90));
  EXPECT_FALSE(takes(kGemmPlain, f64, 90));
  // What may be rounded is, where there are Tensor Cores for it, Hopper included.
  const GroupCase rounded = linear(64, 64, 64, f32, false, round_products);
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    const Machine machine = machine_of(typical_device(capability));
    EXPECT_EQ(rounded.accepted(kGemmMma, machine), capability >= 80) << capability;
    EXPECT_EQ(rounded.accepted(kGemmPlain, machine), capability < 80) << capability;
  }
}

// More work takes longer, and what fills the GPU is not cut into parts.
TEST(GemmMma, TheModelIsPlausible) {
  for (const int capability : {75, 80, 86, 89, 100, 120}) {
    const Machine machine = machine_of(typical_device(capability));
    double last = 0;
    for (const std::int64_t m : {1, 64, 197, 1050, 12608}) {
      GemmProblem p{1, m, 768, 3072, 2, 2, 1, 0};
      const TileSchedule best = gemm_tile_schedules(p, Multiplier::mma, machine).front();
      const double time = model_gemm_tiles(p, best, Multiplier::mma, machine).total;
      EXPECT_GE(time, last);
      last = time;
      EXPECT_TRUE(m < 12608 || best.parts == 1) << best.name();
      const double flops = 2. * static_cast<double>(m) * 768 * 3072;
      EXPECT_GT(time, flops / machine.tensor_tflops / 1e6) << "faster than the GPU";
    }
  }
}

TEST(GemmMma, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const auto compile = [&](GroupCase& group, const GroupCase::Lower& lower, int capability) {
    const Machine machine = machine_of(typical_device(capability));
    for (const Call& call : lower(group.laid(), group.group(), machine).calls)
      expect_no_trouble(call.source, machine.device.architecture());
  };
  GroupCase fused = linear(197, 768, 768, f16, true), wide = linear(197, 768, 768, f32, true),
            odd = linear(197, 91, 77, f16, true),
            rounded = linear(197, 768, 768, f32, true, round_products);
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    compile(fused, with(kMma[0], false), capability);
    compile(odd, with(kMma[8], false), capability);
    compile(wide, with(kPlain[3], true), capability);
    if (capability >= 80) compile(rounded, with(kMma[0], false), capability);
  }
  for (const TileSchedule& s : kMma) {
    compile(fused, with(s, false), 80);
    compile(rounded, with(s, false), 80);
  }
  for (const TileSchedule& s : kPlain) compile(wide, with(s, true), 80);
}

TEST(GemmMmaOnGpu, IsRight) {
  if (const std::string why = emulator::no_device(); !why.empty()) GTEST_SKIP() << why;
  std::mt19937 random(5);
  for (const Arrangement& c : arrangements()) {
    GroupCase narrow(c.f, inputs_of(c, f16), &random), exact(c.f, inputs_of(c, f32), &random);
    SCOPED_TRACE(c.name);
    emulator::expect_on_device(narrow, with({64, 64, 2, 2, 1, 3}, false));
    emulator::expect_on_device(exact, with({32, 128, 1, 1, 1, 3, 4}, true));
    if (!emulator::no_device(80).empty()) continue;
    GroupCase rounded(c.f, inputs_of(c, f32), &random, round_products);
    emulator::expect_on_device(rounded, with({64, 64, 2, 2, 1, 3}, false));
  }
  for (const TileSchedule& s : kMma) {
    GroupCase group = linear(197, 320, 776, f16, true);
    emulator::expect_on_device(group, with(s, false));
    if (!emulator::no_device(80).empty()) continue;
    GroupCase rounded = linear(197, 320, 776, f32, true, round_products);
    emulator::expect_on_device(rounded, with(s, false));
  }
  for (const TileSchedule& s : kPlain) {
    GroupCase group = linear(197, 320, 776, f32, true);
    emulator::expect_on_device(group, with(s, true));
  }
}

}  // namespace
}  // namespace tensor::cuda

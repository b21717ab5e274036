// Rows that registers do not hold: one block goes through each, or several share it.
#include <gtest/gtest.h>

#include <limits>

#include "src/kernels/cuda/generated/row_writer.h"
#include "tensor/nn.h"
#include "tensor/tensor.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/seed.h"

namespace tensor::cuda {
namespace {

using emulator::Tensors;

struct LongCase {
  std::string name;
  TensorFunction function;
  std::vector<TensorType> inputs;
};

Tensor channels_last(const Tensor& x) { return transpose(x, {0, 3, 1, 2}); }

Tensor random_numbers(const Shape& shape, DType dtype) {
  static Generator random(static_cast<std::uint64_t>(check::seed()));
  return random.normal(shape).astype(dtype);
}

// Of so many channels, in groups, with the activation and a sum before it.
TensorFunction normalised_image(std::int64_t channels, std::int64_t groups, bool is_last) {
  const Tensor weight = random_numbers({channels}, f32), bias = random_numbers({channels}, f32);
  return [=](const Tensors& in) -> Tensors {
    const auto image = [&](const Tensor& x) { return is_last ? channels_last(x) : x; };
    const Tensor sum = image(in[0]) + image(in[1]).astype(f32);
    const Tensor result = silu(group_norm(sum, groups, weight, bias)).astype(f16);
    return {sum, is_last ? result.transpose({0, 2, 3, 1}) : result};
  };
}

std::vector<LongCase> long_cases() {
  std::vector<LongCase> cases;
  for (const DType dtype : {f32, f16, bf16})
    cases.push_back(
        {"layer_norm " + std::string(name(dtype)),
         [](const Tensors& in) -> Tensors { return {layer_norm(in[0] + 10, in[1], in[2], 1e-5)}; },
         {{{3, 20480}, dtype}, {{20480}, dtype}, {{20480}, dtype}}});
  cases.push_back({"layer_norm of odd rows",
                   [](const Tensors& in) -> Tensors { return {layer_norm(in[0]) * 2}; },
                   {{{2, 9001}, f32}}});
  // The squares of 1e3 are 1e6: a variance of 1 is lost in their difference.
  cases.push_back({"layer_norm far from zero",
                   [](const Tensors& in) -> Tensors { return {layer_norm(in[0] + 1000)}; },
                   {{{2, 17000}, f32}}});
  cases.push_back({"softmax",
                   [](const Tensors& in) -> Tensors { return {softmax(in[0] * 3)}; },
                   {{{2, 17001}, f16}}});
  cases.push_back({"log_softmax",
                   [](const Tensors& in) -> Tensors { return {log_softmax(in[0] + in[1])}; },
                   {{{3, 16386}, bf16}, {{16386}, bf16}}});
  cases.push_back({"softmax over channels",
                   [](const Tensors& in) -> Tensors { return {softmax(in[0], 1)}; },
                   {{{2, 700, 5, 9}, f32}}});
  cases.push_back({"deviations, and what they are from",
                   [](const Tensors& in) -> Tensors {
                     const Tensor mean_of = mean(in[0], {-1}, true), centred = in[0] - mean_of;
                     const Tensor deviation = sqrt(mean(square(centred), {-1}, true) + 1e-5);
                     return {mean_of, centred / deviation, deviation};
                   },
                   {{{2, 3, 9002}, f32}}});
  cases.push_back({"shares of extremes",
                   [](const Tensors& in) -> Tensors {
                     const Tensor least = min(in[0], {-1}, true), most = max(in[0], {-1}, true);
                     return {(in[0] - least) / (most - least) + sum(in[0], {-1}, true) +
                             var(in[0], {-1}, true, 1)};
                   },
                   {{{2, 9002}, f32}}});
  const auto image = [&](std::int64_t channels, std::int64_t groups, std::int64_t side,
                         bool is_last) {
    Shape shape = {2, channels, side, side + 3};
    if (is_last) shape = {2, side, side + 3, channels};
    cases.push_back({"group_norm of " + std::to_string(channels) + " channels" +
                         (is_last ? ", which come last" : ""),
                     normalised_image(channels, groups, is_last),
                     {{shape, f32}, {shape, f16}}});
  };
  image(64, 32, 17, true);
  image(24, 8, 13, true);
  image(15, 3, 29, true);
  image(8, 1, 33, true);
  image(12, 4, 63, false);
  return cases;
}

Tensors inputs_of(const LongCase& c) {
  Tensors inputs;
  for (const TensorType& type : c.inputs) inputs.push_back(random_numbers(type.shape, type.dtype));
  return inputs;
}

// Where a block takes a row in one window, as in some layouts, there is nothing to split.
emulator::GroupCase::Lower lower_in(RowWay way, bool is_any_layout = false) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
    const auto shape = RowPlan::accept(laid.graph, group);
    EXPECT_TRUE(shape);
    if (is_any_layout && !long_rows_us(*shape, laid, group, machine, way))
      return lower_long_rows(*shape, laid, group, machine, RowWay::whole);
    EXPECT_TRUE(long_rows_us(*shape, laid, group, machine, way));
    const Lowered lowered = lower_long_rows(*shape, laid, group, machine, way);
    EXPECT_EQ(lowered.calls.size() > 1, way == RowWay::split) << lowered.description;
    return lowered;
  };
}

void expect_right(std::mt19937* random, int capability) {
  for (const LongCase& c : long_cases())
    for (const RowWay way : {RowWay::whole, RowWay::split}) {
      SCOPED_TRACE(c.name + (way == RowWay::split ? ", split" : ", whole"));
      emulator::GroupCase group(c.function, inputs_of(c), random);
      emulator::expect_emulated(group, lower_in(way, random != nullptr), capability, 1);
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(LongRows, AgreeWithTheReference) { expect_right(nullptr, 90); }

TEST(LongRows, TakeAnyLayout) {
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  expect_right(&random, 80);
}

TEST(LongRows, CompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::set<std::string> seen;
  for (const LongCase& c : long_cases())
    for (const RowWay way : {RowWay::whole, RowWay::split}) {
      Machine machine = machine_of(typical_device(way == RowWay::split ? 90 : 80));
      machine.any_extent = seen.size() % 2 == 1;
      const emulator::GroupCase group(c.function, inputs_of(c));
      for (const Call& call : lower_in(way)(group.laid(), group.group(), machine).calls) {
        if (!seen.insert(call.source.text).second) continue;
        if (!is_drawn(call.source, machine.device.architecture())) continue;
        SCOPED_TRACE(c.name + "\n" + call.source.text);
        const std::string log =
            Compiler::get().compile(call.source, machine.device.architecture()).log;
        EXPECT_EQ(trouble(log), "");
        EXPECT_EQ(log.find("warning"), std::string::npos) << log;
      }
      if (HasFailure()) return;
    }
}

// As the reference has it: of nothing but -infinity, of NaN and of infinity softmax is NaN.
TEST(LongRows, KeepWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor x = random_numbers({5, 20000}, f32);
  x(0) = -kInfinity;
  x(1, slice(0, 15000)) = -kInfinity;
  x(2, 19999) = std::numeric_limits<float>::quiet_NaN();
  x(3, 7) = kInfinity;
  const auto function = [](const Tensors& in) -> Tensors {
    return {softmax(in[0]), log_softmax(in[0])};
  };
  for (const RowWay way : {RowWay::whole, RowWay::split}) {
    emulator::GroupCase group(function, {x});
    emulator::expect_emulated(group, lower_in(way), 90, 1);
  }
}

// ---- What the planner makes of them.

// The kernels of a function as it is planned for a GPU, a line each.
std::string kernels_of(const TensorFunction& function, const TensorType& input, DType dtype) {
  const Machine machine = machine_of(typical_device(90));
  const emulator::Planned plan(function, {zeros(input.shape, input.dtype)}, {.dtype = dtype},
                               machine);
  EXPECT_EQ(plan.on_host, "");
  std::string names;
  for (const Lowered& lowered : plan.lowered) names += lowered.description + "\n";
  return names;
}

TEST(LongRows, AreSharedByBlocksWhereTheyAreFew) {
  const auto normalised = [](const Tensors& in) -> Tensors { return {layer_norm(in[0])}; };
  EXPECT_EQ(kernels_of(normalised, {{32, 1000}, f32}, f32),
            "sm90a_row_f32_layer_norm_1000_t256_v4\n");
  EXPECT_EQ(kernels_of(normalised, {{2, 100000}, f32}, f32),
            "sm90a_row_f32_layer_norm_100000_a1_v4_split\n");
  EXPECT_EQ(kernels_of(normalised, {{400, 40000}, f32}, f32),
            "sm90a_row_f32_layer_norm_40000_a1_v4\n");
}

// A block of a U-Net: norm, activation, convolution, twice.
TensorFunction residual_block(std::int64_t channels) {
  const auto weights = [&] { return random_numbers({channels, channels, 3, 3}, f32) * 0.05; };
  const Tensor first = weights(), second = weights(), gain = random_numbers({channels}, f32),
               shift = random_numbers({channels}, f32);
  return [=](const Tensors& in) -> Tensors {
    const Tensor x = conv2d(in[0], first, {}, {.padding = 1});
    const Tensor h = silu(group_norm(x, 32, gain, shift));
    return {x + conv2d(h, second, {}, {.padding = 1})};
  };
}

TEST(LongRows, OfGroupNormAreOneGroupWithItsActivation) {
  const auto kernels = [](std::int64_t side, DType dtype) {
    return kernels_of(residual_block(64), {{1, 64, side, side}, f32}, dtype);
  };
  const auto expect_in = [](const std::string& all, const std::string& some) {
    EXPECT_NE(all.find(some), std::string::npos) << some << "is not among\n" << all;
  };
  expect_in(kernels(256, f16),
            "\nsm90a_row_f16_astype_var_add_rsqrt_and7_131072_a32_v2_split\n"
            "sm90a_conv_wgmma_");
  expect_in(kernels(256, f32),
            "\nsm90a_row_f32_var_add_rsqrt_mean_and5_131072_a32_v2_split\n"
            "sm90a_conv_tiled_");
  // Of few pixels, rows are held in registers.
  expect_in(kernels(32, f16), "\nsm90a_row_f16_astype_var_add_rsqrt_and7_2048_t");
}

TEST(LongRows, OfAUNetAreRight) {
  emulator::expect_plan_emulated(residual_block(32), {random_numbers({1, 32, 25, 19}, f32)},
                                 {.dtype = f16}, 90);
}

}  // namespace
}  // namespace tensor::cuda

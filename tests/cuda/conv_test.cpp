// Convolutions: every way to run them compiles for every architecture, and chooses as it should.
#include "src/kernels/cuda/conv/conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "src/kernels/cuda/families.h"
#include "src/trace/passes/cast.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"
#include "tests/families.h"

namespace tensor::cuda {
namespace {

using testing::conv_cases;
using testing::conv_shapes;
using testing::ConvCase;
using testing::ConvShape;
using testing::depthwise_shapes;
using testing::group_shapes;
using testing::model_shapes;
using testing::odd_shapes;
using testing::traced_group;

void expect_compiles(const Lowered& lowered, const Machine& machine) {
  for (const Call& call : lowered.calls)
    expect_no_trouble(call.source, machine.device.architecture());
}

TEST(Conv, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  // Each case with one of the types for one of the architectures.
  const DType dtypes[] = {f16, bf16, f32};
  const int capabilities[] = {90, 75, 80, 86, 89, 100, 120, 90};
  std::size_t turn = 0;
  for (const ConvShape& shape : conv_shapes())
    for (std::size_t i = turn % 2; i < conv_cases(shape, f16).size(); i += 2, ++turn) {
      const auto cases = conv_cases(shape, dtypes[turn % std::size(dtypes)]);
      const ConvCase& c = cases[i % cases.size()];
      const Machine m = machine(capabilities[turn % std::size(capabilities)]);
      const auto t = traced_group(c);
      ASSERT_TRUE(estimate_of(kConv, t.laid, t.group, m)) << c.name << '\n' << t.laid.graph;
      SCOPED_TRACE(c.name + " " + m.device.name);
      expect_compiles(built_by(kConv, t.laid, t.group, m), m);
    }
}

// Every tile that ResNet-50 and SETR's head choose on Hopper, and in float32 anywhere.
TEST(Conv, ImagesOfModelsCompileForHopper) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  const Machine m = machine(90);
  std::set<std::string> schedules;
  for (const DType dtype : {bf16, f32})
    for (const ConvShape& shape : model_shapes()) {
      const ConvCase c = conv_cases(shape, dtype)[2];  // with a residual
      const auto t = traced_group(c);
      const Lowered lowered = built_by(kConv, t.laid, t.group, m);
      SCOPED_TRACE(c.name);
      if (schedules.insert(lowered.description).second) expect_compiles(lowered, m);
    }
}

TEST(Conv, TakesOneConvolutionAndWhatIsElementwise) {
  const Tensor w = testing::constant_of({8, 8, 3, 3}, 1, f16);
  const auto accepts = [&](const TensorFunction& f) {
    const auto t = traced_group({"", f, {{{1, 8, 5, 6}, f16}}});
    return estimate_of(kConv, t.laid, t.group, machine(80)).has_value();
  };
  using Tensors = std::vector<Tensor>;
  const auto conv = [&](const Tensor& x) { return conv2d(x, w, {}, {.padding = 1}); };
  EXPECT_TRUE(accepts([&](const Tensors& in) -> Tensors { return {relu(conv(in[0]))}; }));
  EXPECT_TRUE(accepts([&](const Tensors& in) -> Tensors {
    const Tensor x = conv(in[0]);
    return {x, x + in[0]};
  }));
  EXPECT_FALSE(accepts([&](const Tensors& in) -> Tensors { return {conv(conv(in[0]))}; }));
  EXPECT_FALSE(accepts([&](const Tensors& in) -> Tensors { return {conv(relu(in[0]))}; }));
  EXPECT_FALSE(accepts([&](const Tensors& in) -> Tensors { return {mean(conv(in[0]), {1})}; }));
  // Added up in another order than it is stored.
  EXPECT_FALSE(accepts([&](const Tensors& in) -> Tensors {
    return {reshape(conv(in[0]), {1, 8, 30}) + reshape(in[0], {1, 8, 30})};
  }));
}

// The ways that can run a case, on the emulator.
void expect_ways_right(const ConvCase& c, int capability) {
  emulator::GroupCase group(c.f, testing::inputs_of(c));
  int runs = 0;
  for (const ConvWay* way : {&kConvSm90, &kConvMma, &kConvTiled, &kConvDepthwise, &kConvDirect}) {
    const Machine m = machine(capability);
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv) << c.name << '\n' << group.laid().graph;
    if (!way->estimate(group.laid().graph, group.group(), *conv, m)) continue;
    // Plain arithmetic has its turn with float32 and with what nothing else can run.
    const bool is_plain = way == &kConvTiled || way == &kConvDirect;
    if (++runs > 1 && is_plain) continue;
    SCOPED_TRACE(c.name + " " + m.device.name);
    emulator::expect_emulated(
        group,
        [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
          return way->lower(laid, g, *conv, on);
        },
        capability);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(runs, 1);
}

TEST(Conv, IsRight) {
  const DType dtypes[] = {f16, bf16, f32};
  const int capabilities[] = {90, 75, 80, 90};
  std::size_t turn = 0;
  for (const ConvShape& shape : conv_shapes())
    for (std::size_t i = turn % 2; i < conv_cases(shape, f16).size(); i += 2, ++turn) {
      const auto cases = conv_cases(shape, dtypes[turn % std::size(dtypes)]);
      expect_ways_right(cases[i % cases.size()], capabilities[turn % std::size(capabilities)]);
      if (HasFailure()) return;
    }
}

TEST(Conv, IsRightAtOddSizes) {
  const DType dtypes[] = {f16, bf16, f32};
  const int capabilities[] = {90, 80, 90, 75};
  std::size_t turn = 0;
  for (const ConvShape& shape : odd_shapes())
    for (const DType dtype : dtypes) {
      const auto cases = conv_cases(shape, dtype);
      const int capability = capabilities[turn % std::size(capabilities)];
      expect_ways_right(cases[turn++ % cases.size()],
                        dtype == bf16 ? std::max(capability, 80) : capability);
      if (HasFailure()) return;
    }
}

// The tiles of Hopper's kernel, whichever the model would choose; the depth whole and in parts.
// Float32 rounded to tf32, where there are Tensor Cores for it.
TEST(Conv, IsRightInTf32) {
  std::size_t turn = 0;
  for (const ConvShape& shape : conv_shapes()) {
    const auto cases = conv_cases(shape, f32);
    const ConvCase& c = cases[turn % cases.size()];
    emulator::GroupCase group(c.f, testing::inputs_of(c), nullptr, round_products);
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv && conv->is_tf32) << c.name;
    const int capability = turn++ % 2 == 0 ? 80 : 90;
    const auto estimate = [&](int on) {
      return kConvMma.estimate(group.laid().graph, group.group(), *conv, machine(on));
    };
    EXPECT_FALSE(estimate(75)) << c.name;
    if (conv->groups > 1) continue;
    ASSERT_TRUE(estimate(capability)) << c.name;
    SCOPED_TRACE(c.name);
    emulator::expect_emulated(
        group,
        [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
          return kConvMma.lower(laid, g, *conv, on);
        },
        capability);
    if (HasFailure()) return;
  }
}

TEST(Conv, EveryTileOfHopperIsRight) {
  for (const ConvShape& shape : conv_shapes()) {
    const bool has_parts = shape.name == "wide_window" || shape.name == "half_steps";
    if (shape.name != "pointwise" && !has_parts) continue;
    const ConvCase c = conv_cases(shape, f16)[2];
    emulator::GroupCase group(c.f, testing::inputs_of(c));
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv);
    constexpr int kParts[] = {2, 1, 3, 6};
    std::size_t turn = 0;
    for (ConvSm90Schedule s : conv_sm90_schedules()) {
      if (has_parts) s.parts = kParts[turn++ % std::size(kParts)];
      emulator::expect_emulated(
          group,
          [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
            return lower_conv_sm90(laid, g, *conv, on, s);
          },
          90, 2);
      if (HasFailure()) return;
    }
  }
}

// Operands and results in any order and with gaps.
TEST(Conv, LayoutsDoNotMatter) {
  std::mt19937 random(5);
  for (const ConvShape& shape : conv_shapes()) {
    if (shape.name != "window" && shape.name != "pointwise" && shape.name != "wide_window")
      continue;
    for (const ConvCase& c : conv_cases(shape, f16)) {
      SCOPED_TRACE(c.name);
      emulator::GroupCase group(c.f, testing::inputs_of(c), &random);
      emulator::expect_emulated(group, kConv, random() % 2 == 0 ? 90 : 80);
      if (HasFailure()) return;
    }
  }
}

// Then a kernel brings them into the form that the next one wants.
TEST(Conv, WeightsMayBeOperands) {
  using Tensors = std::vector<Tensor>;
  const ConvWay* ways[] = {&kConvSm90, &kConvMma, &kConvTiled};
  const int capabilities[] = {90, 80, 75};
  std::mt19937 random(7);
  std::set<const ConvWay*> seen;
  std::size_t turn = 0;
  for (const ConvShape& shape : conv_shapes()) {
    if (shape.options.groups > 1) continue;
    const DType dtype = turn % 3 == 2 ? f32 : f16;
    const bool turns = shape.is_channels_last;
    const Shape& s = shape.image;
    const Tensor image = testing::constant_of(turns ? Shape{s[0], s[2], s[3], s[1]} : s, 1, dtype);
    const Tensor weight =
        testing::constant_of({shape.outputs, s[1], shape.taps.h, shape.taps.w}, 0.2, dtype);
    emulator::GroupCase group(
        [&](const Tensors& in) -> Tensors {
          const Tensor x = turns ? transpose(in[0], {0, 3, 1, 2}) : in[0];
          return {relu(conv2d(x, in[1], {}, shape.options))};
        },
        {image, weight}, turn % 2 == 1 ? &random : nullptr);
    const int capability = capabilities[turn++ % std::size(capabilities)];
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv && !conv->is_constant) << shape.name;
    for (const ConvWay* way : ways) {
      if (!way->estimate(group.laid().graph, group.group(), *conv, machine(capability))) continue;
      SCOPED_TRACE(shape.name + " " + std::to_string(capability));
      emulator::expect_emulated(
          group,
          [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
            return way->lower(laid, g, *conv, on);
          },
          capability);
      if (HasFailure()) return;
      seen.insert(way);
    }
  }
  EXPECT_EQ(seen.size(), std::size(ways));
}

TEST(Conv, TransposedOnesAreConvolutions) {
  using Tensors = std::vector<Tensor>;
  const Tensor w = testing::constant_of({16, 24, 3, 2}, 0.3, f32),
               x = testing::constant_of({2, 16, 5, 4}, 1, f32),
               bias = testing::constant_of({24}, 1, f32);
  const ConvTranspose2dOptions options{
      .stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 0}};
  for (const DType dtype : {f32, f16})
    emulator::expect_plan_emulated(
        [&](const Tensors& in) -> Tensors {
          return {relu(conv_transpose2d(in[0], w, bias, options))};
        },
        {x}, {.dtype = dtype}, 80);
}

// Other types, and groups of weights that are no constants.
TEST(Conv, AnythingElseRunsInALoop) {
  using Tensors = std::vector<Tensor>;
  for (const DType dtype : {f32, f64, f16}) {
    const Tensor x = testing::constant_of({2, 6, 5, 4}, 1, dtype);
    const Tensor own = testing::constant_of({6, 3, 2, 3}, 0.3, dtype);
    emulator::GroupCase grouped(
        [&](const Tensors& in) -> Tensors { return {conv2d(in[0], in[1], {}, {.groups = 2})}; },
        {x, own});
    emulator::expect_emulated(grouped, kConv, 75);
  }
}

// On the machine's GPU, if there is one: every case as the family would run it there.
TEST(Conv, IsRightOnDevice) {
  if (const std::string why = emulator::no_device(); !why.empty()) GTEST_SKIP() << why;
  std::vector<ConvShape> shapes = conv_shapes();
  for (const ConvShape& shape : odd_shapes()) shapes.push_back(shape);
  for (const auto& more : {depthwise_shapes(), group_shapes()})
    shapes.insert(shapes.end(), more.begin(), more.end());
  for (const ConvShape& shape : shapes)
    for (const DType dtype : {f16, bf16, f32})
      for (const ConvCase& c : conv_cases(shape, dtype)) {
        SCOPED_TRACE(c.name + " " + std::string(name(dtype)));
        emulator::GroupCase group(c.f, testing::inputs_of(c));
        emulator::expect_on_device(group, kConv);
      }
}

// Mma.sync is not what the newest GPUs choose; and sizes of models fill many tiles.
TEST(Conv, EveryWayIsRightOnDevice) {
  if (const std::string why = emulator::no_device(80); !why.empty()) GTEST_SKIP() << why;
  const std::vector<ConvShape> shapes = {
      {"stem", {1, 3, 100, 167}, 64, 7, {.stride = 2, .padding = 3}, false},
      {"patches", {1, 3, 56, 70}, 136, 14, {.stride = 14}, false},
      {"window", {2, 64, 25, 42}, 192, 3, {.padding = 1}},
      {"window_stride", {1, 128, 25, 42}, 256, 3, {.stride = 2, .padding = 1}},
      {"deep", {1, 512, 13, 21}, 256, 1, {}},
      {"dilation", {1, 128, 25, 42}, 128, 3, {.padding = 2, .dilation = 2}}};
  const Machine m = machine_of(Device::get().info());
  for (const ConvShape& shape : shapes)
    for (const ConvCase& c : conv_cases(shape, f16)) {
      emulator::GroupCase group(c.f, testing::inputs_of(c));
      const auto conv = match_convolution(group.laid().graph, group.group());
      ASSERT_TRUE(conv) << c.name;
      for (const ConvWay* way : {&kConvSm90, &kConvMma, &kConvTiled}) {
        if (!way->estimate(group.laid().graph, group.group(), *conv, m)) continue;
        SCOPED_TRACE(c.name);
        emulator::expect_on_device(
            group, [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
              return way->lower(laid, g, *conv, on);
            });
      }
    }
}

TEST(Conv, EveryTileOfHopperIsRightOnDevice) {
  if (const std::string why = emulator::no_device(90, true); !why.empty()) GTEST_SKIP() << why;
  for (const ConvShape& shape :
       {ConvShape{"window", {2, 128, 25, 42}, 264, 3, {.stride = 2, .padding = 1}},
        ConvShape{"half_steps", {2, 96, 25, 42}, 264, 3, {.stride = 2, .padding = 1}},
        ConvShape{"ragged_pointwise", {2, 1096, 25, 42}, 264, 1, {}}}) {
    const ConvCase c = conv_cases(shape, bf16)[2];
    emulator::GroupCase group(c.f, testing::inputs_of(c));
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv);
    for (ConvSm90Schedule s : conv_sm90_schedules())
      for (const int parts : {1, 2, 3, 4, 6, 8}) {
        s.parts = parts;
        emulator::expect_on_device(
            group, [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
              return lower_conv_sm90(laid, g, *conv, on, s);
            });
      }
  }
}

}  // namespace
}  // namespace tensor::cuda

// Convolutions with groups: a filter for every channel, in every way that the space has, and groups
// of more on Tensor Cores.
#include <gtest/gtest.h>

#include <random>

#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/families.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/conv_cases.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"
#include "tests/families.h"

namespace tensor::cuda {
namespace {

using testing::conv_cases;
using testing::ConvCase;
using testing::ConvShape;
using testing::depthwise_shapes;
using testing::group_shapes;
using testing::traced_group;

// Tiles at random, of all that there are for a shape.
TEST(Conv, DepthwiseIsRight) {
  const DType dtypes[] = {f16, bf16, f32};
  const int capabilities[] = {90, 80, 75};
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  std::size_t turn = 0;
  for (const ConvShape& shape : depthwise_shapes())
    for (int draw = 0; draw < 3; ++draw, ++turn) {
      const int capability = capabilities[turn % std::size(capabilities)];
      const DType dtype = dtypes[capability == 75 ? 0 : (turn / 2) % std::size(dtypes)];
      const auto cases = conv_cases(shape, dtype);
      const ConvCase& c = cases[turn % cases.size()];
      emulator::GroupCase group(c.f, testing::inputs_of(c));
      const auto conv = match_convolution(group.laid().graph, group.group());
      ASSERT_TRUE(conv) << c.name;
      const Machine m = machine(capability);
      const Space space = kConvDepthwise.space(group.laid().graph, group.group(), *conv, m);
      std::vector<Schedule> all = space.all();
      ASSERT_FALSE(all.empty()) << c.name;
      const Schedule drawn = all[random() % all.size()];
      SCOPED_TRACE(c.name + " " + drawn.text() + " " + m.device.name);
      emulator::expect_emulated(
          group,
          [&](const LaidOutGraph& laid, const Group& g, const Machine& on) {
            Group scheduled = g;
            if (draw > 0) scheduled.schedule = drawn.text();
            return kConvDepthwise.lower(laid, scheduled, *conv, on);
          },
          capability);
      if (HasFailure()) return;
    }
}

bool is_last(const ConvShape& shape) { return shape.name == group_shapes().back().name; }

TEST(Conv, GroupsRunOnTensorCores) {
  const DType dtypes[] = {f16, bf16};
  std::size_t turn = 0;
  for (const ConvShape& shape : group_shapes())
    for (const auto& [way, capability] :
         {std::pair(&kConvSm90, 90), std::pair(&kConvMma, 80), std::pair(&kConvMma, 75)}) {
      const DType dtype = dtypes[capability == 75 ? 0 : turn % 2];
      const auto cases = conv_cases(shape, dtype);
      // The last converts the image, so that windows apart become rows of a matrix.
      const ConvCase& c = is_last(shape) ? cases.back() : cases[turn % cases.size()];
      ++turn;
      emulator::GroupCase group(c.f, testing::inputs_of(c));
      const auto conv = match_convolution(group.laid().graph, group.group());
      const Machine m = machine(capability);
      ASSERT_TRUE(conv && way->estimate(group.laid().graph, group.group(), *conv, m)) << c.name;
      SCOPED_TRACE(c.name + " " + m.device.name);
      emulator::expect_emulated(
          group,
          [&way = way, &conv](const LaidOutGraph& laid, const Group& g, const Machine& on) {
            return way->lower(laid, g, *conv, on);
          },
          capability);
      if (HasFailure()) return;
    }
}

// Weights that are no constants cannot be spread; filters of a channel each need not be.
TEST(Conv, WeightsOfGroupsMayBeOperands) {
  using Tensors = std::vector<Tensor>;
  for (const std::int64_t groups : {2, 16}) {
    const Tensor image = testing::constant_of({2, 7, 6, 16}, 1, f16),
                 weight = testing::constant_of({16, 16 / groups, 3, 3}, 0.3, f16);
    emulator::GroupCase group(
        [&](const Tensors& in) -> Tensors {
          return {relu(
              conv2d(transpose(in[0], {0, 3, 1, 2}), in[1], {}, {.padding = 1, .groups = groups}))};
        },
        {image, weight});
    const auto conv = match_convolution(group.laid().graph, group.group());
    ASSERT_TRUE(conv && !conv->is_constant);
    const auto can = [&](const ConvWay& way) {
      return way.estimate(group.laid().graph, group.group(), *conv, machine(90)).has_value();
    };
    EXPECT_FALSE(can(kConvSm90) || can(kConvMma) || can(kConvTiled)) << groups;
    EXPECT_EQ(can(kConvDepthwise), groups == 16);
    emulator::expect_emulated(group, kConv, 90);
  }
}

// What models have, on every kind of GPU; the direct loop is never the better way.
TEST(Conv, DepthwiseCompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::size_t turn = 0;
  for (const std::int64_t taps : {3, 5, 7})
    for (const std::int64_t stride : {1, 2})
      for (const DType dtype : {f16, f32}) {
        const std::int64_t channels = 96;
        const ConvCase c =
            conv_cases({"model",
                        {32, channels, 56, 56},
                        channels,
                        taps,
                        {.stride = stride, .padding = (taps - 1) / 2, .groups = channels}},
                       dtype)[1];
        const int capabilities[] = {90, 75, 80, 86, 89, 100, 120};
        const Machine m = machine(capabilities[turn++ % std::size(capabilities)]);
        const auto t = traced_group(c);
        const Lowered lowered = built_by(kConv, t.laid, t.group, m);
        EXPECT_NE(lowered.description.find("conv_depthwise"), std::string::npos)
            << lowered.description;
        for (const Call& call : lowered.calls)
          expect_no_trouble(call.source, m.device.architecture());
      }
}

}  // namespace
}  // namespace tensor::cuda

// Convolutions of bytes on Hopper: the same numbers as the reference's, whatever the window, the
// tile and the parts of the depth.
#include <gtest/gtest.h>

#include "src/kernels/cuda/conv/conv.h"
#include "src/kernels/cuda/families.h"
#include "src/ops/pair.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/gemm_bytes_cases.h"
#include "tests/cuda/machines.h"
#include "tests/cuda/on_device.h"
#include "tests/families.h"

namespace tensor::cuda {
namespace {

using emulator::GroupCase;

struct BytesConv {
  Shape image;  // [N, H, W, C]
  std::int64_t outputs;
  Pair taps, stride = 1, padding = 0, dilation = 1;
  After after = After::nothing;
};

const std::vector<BytesConv> kConvs = {{{2, 9, 7, 128}, 72, 1, 1, 0, 1, After::both},
                                       {{1, 13, 11, 256}, 136, 3, 1, 1, 1, After::bytes},
                                       {{2, 12, 9, 128}, 264, 3, 2, 1, 1, After::bias_and_gelu},
                                       {{1, 7, 12, 128}, 64, 3, 1, 2, 2, After::residual},
                                       {{1, 9, 11, 128}, 64, 1, 2, 0, 1, After::nothing},
                                       {{1, 4, 5, 384}, 24, {1, 5}, 1, {0, 2}, 1, After::both}};

GroupCase bytes_conv(const BytesConv& p, std::mt19937* layouts = nullptr) {
  Generator random(23);
  const std::int64_t channels = p.image[3];
  const Tensor weights = random_strips(random, p.outputs, channels * p.taps.h * p.taps.w),
               scales = abs(random.normal({p.outputs})) / 4096,
               bias = random.normal({p.outputs, 1, 1});
  const auto window = [&](Pair pair) { return Ints{pair.h, pair.w}; };
  const Attrs attrs = {{"kernel", window(p.taps)},
                       {"stride", window(p.stride)},
                       {"padding", window(p.padding)},
                       {"dilation", window(p.dilation)}};
  const auto product = [=](const Tensor& images) {
    return apply_op(Op::quantized_conv2d, {images.transpose({0, 3, 1, 2}), weights, scales}, attrs);
  };
  std::vector<Tensor> inputs = {random_bytes(random, p.image)};
  if (p.after == After::residual) inputs.push_back(random.normal(product(inputs[0]).shape()));
  const TensorFunction f = [=,
                            after = p.after](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor sums = product(in[0]);
    if (after == After::nothing) return {sums};
    if (after == After::residual) return {relu(sums + bias + in[1])};
    const Tensor wide = gelu(sums + bias);
    if (after == After::bias_and_gelu) return {wide.astype(f16)};
    const Tensor bytes = round(maximum(wide * full({1}, 8, f32), -127)).astype(i8);
    return after == After::both ? std::vector{wide.astype(f16), bytes} : std::vector{bytes};
  };
  return GroupCase(f, inputs, layouts);
}

GroupCase::Lower by(const ConvSm90Schedule& s) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
    return lower_conv_sm90(laid, group, *match_convolution(laid.graph, group), machine, s);
  };
}

TEST(ConvBytes, AreRight) {
  for (const BytesConv& p : kConvs) {
    SCOPED_TRACE(&p - kConvs.data());
    GroupCase group = bytes_conv(p);
    emulator::expect_emulated(group, kConv, 90);
    if (HasFailure()) return;
  }
}

TEST(ConvBytes, EveryTileIsRight) {
  constexpr int kParts[] = {1, 2, 3};
  std::size_t turn = 0;
  for (ConvSm90Schedule s : conv_sm90_schedules()) {
    s.parts = kParts[turn++ % std::size(kParts)];
    SCOPED_TRACE(turn);
    GroupCase group = bytes_conv(kConvs[s.parts > 1 ? 2 : turn % kConvs.size()]);
    emulator::expect_emulated(group, by(s), 90);
    if (HasFailure()) return;
  }
}

TEST(ConvBytes, LieInAnyWay) {
  std::mt19937 layouts(9);
  for (const std::size_t i : {0, 2}) {
    GroupCase group = bytes_conv(kConvs[i], &layouts);
    emulator::expect_emulated(group, kConv, 90);
  }
}

TEST(ConvBytes, OnlyHopperTakesThem) {
  const GroupCase few = bytes_conv({{1, 4, 4, 64}, 64, 1}), many = bytes_conv(kConvs[0]);
  EXPECT_FALSE(estimate_of(kConv, few.laid(), few.group(), h200()));
  EXPECT_TRUE(estimate_of(kConv, many.laid(), many.group(), h200()));
  EXPECT_FALSE(estimate_of(kConv, many.laid(), many.group(), machine_of(typical_device(89))));
}

TEST(ConvBytes, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  std::size_t turn = 0;
  for (ConvSm90Schedule s : conv_sm90_schedules()) {
    const GroupCase group = bytes_conv(kConvs[turn++ % kConvs.size()]);
    const auto compiles = [&](int parts) {
      s.parts = parts;
      for (const Call& call : by(s)(group.laid(), group.group(), h200()).calls)
        expect_no_trouble(call.source, "sm_90a");
    };
    compiles(1);
    if (turn % 3 == 0) compiles(4);
  }
}

TEST(ConvBytesOnGpu, AreRight) {
  if (const std::string why = emulator::no_device(90, true); !why.empty()) GTEST_SKIP() << why;
  for (const BytesConv& p : kConvs) {
    GroupCase group = bytes_conv(p);
    emulator::expect_on_device(group, kConv);
  }
  for (ConvSm90Schedule s : conv_sm90_schedules())
    for (const int parts : {1, 2, 4, 8}) {
      s.parts = parts;
      GroupCase group = bytes_conv({{2, 25, 42, 256}, 264, 3, 2, 1, 1, After::both});
      emulator::expect_on_device(group, by(s));
    }
}

}  // namespace
}  // namespace tensor::cuda

// The Hopper product with what belongs to rows: addends in boxes, layer_norm folded, sums of rows.
#include <gtest/gtest.h>

#include "tests/cuda/gemm_sm90_cases.h"

namespace tensor::cuda {
namespace {

// A residual of either width in every batch, of which the last rows and features fill no box. What
// does not lie in rows of whole chunks is read by the epilogue.
TEST(GemmSm90, AddsWhatComesAsBoxes) {
  Generator random(17);
  std::mt19937 layouts(19);
  const auto normal = [&](const Shape& shape, DType dtype) {
    return random.normal(shape).astype(dtype);
  };
  std::vector<GemmSchedule> schedules = {kTenPanels, kWide};
  for (const GemmSchedule& s : kSchedules)
    if (!s.swapped) schedules.push_back(s);
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const GemmSchedule& s = schedules[i];
    const bool is_turned = s.shares == 1 && i % 2 == 0, lies_anyhow = i % 5 == 4;
    const DType dtype = i % 2 ? f16 : f32;
    const std::int64_t m = i % 4 < 2 ? 257 : 65, batches = i < 2 ? 3 : i % 3 + 1;
    SCOPED_TRACE(s.name() + " of " + std::to_string(m) + " tokens");
    const Tensor bias = normal({136}, f32), w = normal({72, 136}, f16);
    const bool is_constant = !is_turned || s.tile_n % 64 != 0;
    const TensorFunction f = [=](const Tensors& in) -> Tensors {
      const Tensor product = matmul(in[0], is_constant ? w : in[2]).astype(f32);
      return {(product + bias + in[1].astype(f32)).astype(dtype)};
    };
    Tensors inputs = {normal({batches, m, 72}, f16), normal({batches, m, 136}, dtype)};
    if (!is_constant) inputs.push_back(normal({batches, 72, 136}, f16));
    emulator::GroupCase group(f, inputs, lies_anyhow ? &layouts : nullptr);
    const auto lower = [&](const LaidOutGraph& laid, const Group& of, const Machine& machine) {
      Lowered lowered = by(s, 2)(laid, of, machine);
      EXPECT_EQ(lowered.calls.back().source.text.find("kAddend = true") != std::string::npos,
                !lies_anyhow);
      return lowered;
    };
    emulator::expect_emulated(group, lower, 90);
    if (HasFailure()) return;
  }
}

TEST(GemmSm90, NormalizesRows) {
  Generator random(11);
  constexpr std::int64_t kTokens[] = {7, 65, 197};
  const auto schedules = with_wide();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const std::int64_t m = kTokens[i % 3];
    SCOPED_TRACE(schedules[i].name() + " of " + std::to_string(m) + " tokens");
    const double gain = i % 3 == 0 ? 1 : i % 3 == 1 ? 1e-5 : 1e4;
    emulator::GroupCase group =
        normalized_case(random, m, 136, i % 2 ? 192 : 320, i % 2 ? f16 : bf16, gain, i % 3 == 0);
    if (!fault(schedules[i], group).empty()) continue;
    emulator::expect_emulated(group, by(schedules[i], 2), 90);
    if (HasFailure()) return;
  }
  emulator::GroupCase chosen = normalized_case(random, 33, 100, 256, f16, 1, false);
  emulator::expect_emulated(chosen, kGemmSm90, 90);
  // With an addend beside.
  const Tensor w = random.normal({128, 136}).astype(f16), gain = random.normal({128}),
               shift = random.normal({128});
  const TensorFunction f = [=](const Tensors& in) -> Tensors {
    const Tensor product = matmul(normalized(in[0], in[1], gain, shift), w);
    return {(product.astype(f32) + in[2].astype(f32)).astype(f16)};
  };
  const Tensor x = random.normal({257, 128}).astype(f16), y = random.normal({257, 136}).astype(f16);
  for (const GemmSchedule& s : schedules) {
    if (s.swapped || s.shares > 1 || s.groups != 2) continue;
    SCOPED_TRACE(s.name() + " with an addend");
    emulator::GroupCase group(f, {x, row_sums(x), y});
    if (!fault(s, group).empty()) continue;
    emulator::expect_emulated(group, by(s, 2), 90);
  }
}

TEST(GemmSm90, SumsRows) {
  Generator random(13);
  constexpr std::int64_t kTokens[] = {1, 7, 65, 197, 257};
  const auto schedules = with_wide();
  for (std::size_t i = 0; i < schedules.size(); ++i) {
    const GemmSchedule& s = schedules[i];
    SCOPED_TRACE(s.name());
    const Shape batch = i % 4 == 3 ? Shape{2} : Shape{};
    for (const bool is_narrow : {false, true}) {
      emulator::GroupCase group =
          summed_case(random, batch, kTokens[i % 5], i % 2 ? 192 : 320, s.splits > 1 ? 328 : 72,
                      i % 2 ? f16 : bf16, is_narrow);
      if (fault(s, group).empty()) emulator::expect_emulated(group, by(s, 2), 90);
    }
    if (HasFailure()) return;
  }
  for (const bool is_narrow : {false, true}) {
    emulator::GroupCase chosen = summed_case(random, {}, 33, 128, 264, f16, is_narrow);
    emulator::expect_emulated(chosen, kGemmSm90, 90);
  }
}

}  // namespace
}  // namespace tensor::cuda

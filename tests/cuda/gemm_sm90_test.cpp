// The Hopper product, right on the emulator and on a GPU.
#include <gtest/gtest.h>

#include "tests/cuda/gemm_sm90_cases.h"
#include "tests/cuda/on_device.h"

namespace tensor::cuda {

static void PrintTo(const GemmSchedule& s, std::ostream* out) { *out << s.name(); }

namespace {

// Every schedule on the emulator, of awkward numbers of tokens in turn.
TEST(GemmSm90, IsRight) {
  Generator random(3);
  constexpr std::int64_t kTokens[] = {1, 7, 63, 65, 197, 257};
  for (std::size_t i = 0; i < kSchedules.size(); ++i) {
    const GemmSchedule& s = kSchedules[i];
    for (const std::size_t turn : {0, 1}) {
      const std::int64_t m = kTokens[(i + turn) % 6];
      SCOPED_TRACE(s.name() + " of " + std::to_string(m) + " tokens");
      emulator::GroupCase group = product_case(random, m, 136, s.splits > 1 ? 328 : 72, turn != 1);
      emulator::expect_emulated(group, by(s, 2), 90);
    }
    if (HasFailure()) return;
  }
  emulator::GroupCase wide = product_case(random, 257, 200, 72, false);
  emulator::expect_emulated(wide, by(kWide, 2), 90);
  // Every block has several tiles for each of its groups.
  emulator::GroupCase many = product_case(random, 700, 136, 200, true);
  for (const GemmSchedule& s : kSchedules)
    if (s.takes_turns || s.shares > 1) emulator::expect_emulated(many, by(s, 2), 90, 2);
}

// Batches, broadcast and not, of any layout; factors and weights that must be copied or packed;
// features that fill no panel.
struct Shapes {
  Shape left, right;
  bool is_constant;
};
const std::vector<Shapes> kShapes = {
    {{3, 65, 40}, {3, 40, 72}, false},
    {{2, 2, 33, 24}, {1, 2, 24, 64}, false},
    {{2, 3, 20, 64}, {64, 100}, true},
    {{1, 5, 64}, {64, 1000}, true},
    {{50, 72}, {72, 4}, true},
    {{7, 100}, {100, 92}, true},
    {{2, 2, 20, 30}, {2, 2, 30, 7}, false},
    {{1, 1}, {1, 1}, false},
};

void check_shapes(const std::function<void(emulator::GroupCase&)>& check) {
  Generator random(5);
  std::mt19937 layouts(7);
  for (const Shapes& shapes : kShapes)
    for (const bool is_random : {false, true}) {
      const Tensor a = random.normal(shapes.left).astype(bf16),
                   b = random.normal(shapes.right).astype(bf16);
      const TensorFunction f = [=](const Tensors& in) -> Tensors {
        return {relu(matmul(in[0], shapes.is_constant ? b : in[1]).astype(f32) * 0.25)};
      };
      emulator::GroupCase group(f, shapes.is_constant ? Tensors{a} : Tensors{a, b},
                                is_random ? &layouts : nullptr);
      check(group);
    }
}

TEST(GemmSm90, TakesAnyShapesAndLayouts) {
  check_shapes([](emulator::GroupCase& group) { emulator::expect_emulated(group, kGemmSm90, 90); });
}

// ---- On a GPU. Schedules are cases of their own, so that several processes can share them out.

class GemmSm90OnGpu : public ::testing::TestWithParam<GemmSchedule> {
 protected:
  void SetUp() override {
    if (const std::string reason = emulator::no_device(90, true); !reason.empty())
      GTEST_SKIP() << reason;
  }
};

// Cases that are the same for all schedules: the reference takes seconds. Several turns of tiles.
struct LargeCases {
  Generator random{4};
  emulator::GroupCase product = product_case(random, 3000, 1544, 328, true);
  emulator::GroupCase normalized = normalized_case(random, 3000, 1544, 1280, f16, 1, false);
  emulator::GroupCase summed = summed_case(random, {}, 3000, 1536, 328, f16, false);
  emulator::GroupCase narrow = summed_case(random, {}, 3000, 1536, 328, f16, true);
};

TEST_P(GemmSm90OnGpu, IsRight) {
  const GemmSchedule& s = GetParam();
  Generator random(3);
  for (const std::int64_t m : {1, 65, 197, 257}) {
    SCOPED_TRACE(std::to_string(m) + " tokens");
    for (const bool is_fused : {false, true}) {
      emulator::GroupCase group = product_case(random, m, 328, 520, is_fused);
      emulator::expect_on_device(group, by(s));
    }
  }
  static LargeCases large;
  if (s.splits == 1 && s.tile_n >= 128) emulator::expect_on_device(large.product, by(s));
  for (emulator::GroupCase* group : {&large.normalized, &large.summed, &large.narrow})
    if (fault(s, *group).empty()) emulator::expect_on_device(*group, by(s));
}

INSTANTIATE_TEST_SUITE_P(Schedules, GemmSm90OnGpu, ::testing::ValuesIn(with_wide()),
                         [](const auto& schedule) { return schedule.param.name(); });

TEST(GemmSm90ChosenOnGpu, IsRight) {
  if (const std::string reason = emulator::no_device(90, true); !reason.empty())
    GTEST_SKIP() << reason;
  check_shapes([](emulator::GroupCase& group) { emulator::expect_on_device(group, kGemmSm90); });
  Generator random(3);
  emulator::GroupCase large = product_case(random, 3000, 1544, 328, true);
  emulator::expect_on_device(large, kGemmSm90);
  emulator::GroupCase normalized = normalized_case(random, 3000, 1544, 320, f16, 1, false);
  emulator::expect_on_device(normalized, kGemmSm90);
}

}  // namespace
}  // namespace tensor::cuda

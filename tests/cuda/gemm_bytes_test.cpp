// Products in eight bits, by mma.sync, wgmma and on ordinary cores: the bits of the definition on
// the emulator and on a GPU, and compiled without spills for every architecture.
#include <gtest/gtest.h>

#include "src/kernels/cuda/gemm/mma.h"
#include "tests/cuda/compiled.h"
#include "tests/cuda/gemm_bytes_cases.h"
#include "tests/cuda/gemm_sm90_cases.h"
#include "tests/cuda/on_device.h"
#include "tests/cuda/space_testing.h"

namespace tensor::cuda {
namespace {

using emulator::expect_emulated;
using emulator::GroupCase;

const std::vector<TileSchedule> kByteTiles = {
    {128, 128, 2, 4, 1, 4}, {128, 64, 4, 2, 1, 3}, {64, 128, 2, 4, 2, 4},
    {64, 64, 2, 2, 1, 2},   {64, 32, 4, 1, 3, 3},  {32, 64, 2, 2, 1, 4},
    {32, 32, 2, 1, 2, 2},   {16, 64, 1, 4, 1, 4},  {16, 128, 1, 4, 2, 4}};
constexpr After kAfter[] = {After::nothing, After::bias_and_gelu, After::residual};
constexpr std::int64_t kNumbersOfTokens[] = {1, 7, 63, 65, 197, 257};

GroupCase::Lower by_tiles(const TileSchedule& schedule, bool is_plain = false) {
  return [=](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
    return is_plain ? lower_gemm_plain(laid, group, machine, schedule)
                    : lower_gemm_mma(laid, group, machine, schedule);
  };
}

// Hopper's schedules that there are of eight bits.
std::vector<GemmSchedule> byte_schedules() {
  std::vector<GemmSchedule> all;
  const GemmProblem p{.m = 1 << 20, .n = 1 << 20, .k = 1 << 20, .staged_bytes = 0, .item_bytes = 1};
  for (GemmSchedule s : with_wide()) {
    if (s.swapped) s.tile_m = static_cast<int>(p.in_columns(s.tile_m));
    if (s.fault(h200().device.shared_block_bytes, p).empty()) all.push_back(s);
  }
  return all;
}

TEST(GemmBytes, EveryTileIsRight) {
  Generator random(3);
  for (std::size_t i = 0; i < kByteTiles.size(); ++i) {
    SCOPED_TRACE(kByteTiles[i].name());
    GroupCase group = bytes_case(random, {}, kNumbersOfTokens[i % 6], i % 3 == 0 ? 91 : 136,
                                 i % 2 == 0 ? 328 : 269, kAfter[i % 3]);
    expect_emulated(group, by_tiles(kByteTiles[i]), i % 4 == 3 ? 120 : 80);
    if (HasFailure()) return;
  }
}

TEST(GemmBytes, OlderGpusMultiplyOnOrdinaryCores) {
  Generator random(4);
  for (const std::int64_t m : {7, 65}) {
    GroupCase group = bytes_case(random, {}, m, 72, 77, kAfter[m % 3]);
    expect_emulated(group, kGemmPlain, 75);
    expect_emulated(group, by_tiles({32, 64, 1, 1, 3, 2, 2}, true), 75);
  }
}

TEST(GemmBytes, EveryScheduleOfHopperIsRight) {
  Generator random(5);
  EXPECT_GE(byte_schedules().size(), 16u);
  for (std::size_t i = 0; const GemmSchedule& s : byte_schedules()) {
    for (const std::size_t turn : {0, 1}) {
      const std::int64_t m = kNumbersOfTokens[(i + turn) % 6];
      SCOPED_TRACE(s.name(128) + " of " + std::to_string(m) + " tokens");
      GroupCase group =
          bytes_case(random, {}, m, 136, s.splits > 1 ? 656 : 144, kAfter[(i + turn) % 3]);
      if (fault(s, group).empty()) expect_emulated(group, by(s, 2), 90);
    }
    if (HasFailure()) return;
    ++i;
  }
}

// Batches, rows that lie in any way, one of everything; with and without scales of rows.
TEST(GemmBytes, RowsLieInAnyWay) {
  Generator random(6);
  std::mt19937 layouts(7);
  for (const bool is_random : {false, true})
    for (const bool has_scales : {false, true}) {
      std::mt19937* draw = is_random ? &layouts : nullptr;
      GroupCase batch = bytes_case(random, {3}, 33, 40, 40, After::nothing, draw, has_scales),
                one = bytes_case(random, {}, 1, 1, 1, After::nothing, draw, has_scales),
                row =
                    bytes_case(random, {2, 2}, 1, 50, 100, After::bias_and_gelu, draw, has_scales);
      for (GroupCase* group : {&batch, &one, &row}) {
        expect_emulated(*group, kGemmSm90, 90);
        expect_emulated(*group, kGemmMma, 80);
        expect_emulated(*group, kGemmPlain, 75);
      }
    }
}

// What the next product reads is rounded by one scale where it is made.
TEST(GemmBytes, RoundWhatTheyMake) {
  Generator random(15);
  GroupCase large = bytes_case(random, {}, 65, 136, 144, After::both),
            odd = bytes_case(random, {}, 7, 91, 77, After::bytes);
  for (GroupCase* group : {&large, &odd}) {
    expect_emulated(*group, kGemmSm90, 90);
    expect_emulated(*group, kGemmMma, 80);
    expect_emulated(*group, kGemmPlain, 75);
  }
}

// Bytes leave in boxes of 128 features, of which the last have fewer.
TEST(GemmBytes, LeaveHopperInBoxes) {
  Generator random(17);
  int boxed = 0;
  for (const GemmSchedule& s : byte_schedules()) {
    if (s.swapped || s.tile_n % 128 != 0) continue;
    SCOPED_TRACE(s.name(128));
    GroupCase group = bytes_case(random, {}, kNumbersOfTokens[boxed % 6], 272, 144, After::bytes);
    if (!fault(s, group).empty()) continue;
    expect_emulated(group, by(s, 2), 90);
    if (HasFailure()) return;
    ++boxed;
  }
  EXPECT_GE(boxed, 4);
}

TEST(GemmBytes, OtherScalesNeedNoOtherKernel) {
  const auto text = [](float inverse) {
    Generator random(16);
    const BytesProduct p = bytes_product(random, {}, 65, 64, 64, After::nothing);
    const TensorFunction f = [=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {round(maximum(p.function(in)[0] * full({1}, inverse, f32), -127)).astype(i8)};
    };
    const GroupCase group(f, p.inputs);
    const Machine machine = machine_of(typical_device(80));
    return by_tiles(kByteTiles[3])(group.laid(), group.group(), machine).calls.back().source.text;
  };
  EXPECT_EQ(text(8), text(0.3F));
}

// Sums beyond 2^24, which float32 cannot hold, so that float(sum) is rounded once.
GroupCase large_sums(std::int64_t k) {
  Generator random(8);
  const Tensor weights = full({2, k / 4, 16, 4}, 127, i8), scales = random.normal({32});
  const Tensor rows = full({20, k}, 127, i8) - (random.uniform({20, k}) < 0.1).astype(i8);
  const TensorFunction f = [=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {apply_op(Op::quantized_matmul, {in[0], weights, scales, in[1]})};
  };
  return GroupCase(f, {rows, abs(random.normal({20, 1}))});
}

TEST(GemmBytes, LargeSumsAreExact) {
  GroupCase group = large_sums(2048);
  expect_emulated(group, by_tiles({32, 32, 2, 1, 2, 2}), 80);
  expect_emulated(group, kGemmPlain, 75);
  expect_emulated(group, by(GemmSchedule{.tile_m = 24, .tile_n = 64, .swapped = true, .splits = 2}),
                  90);
}

TEST(GemmBytes, FamiliesTakeWhatTheirGpuHas) {
  Generator random(9);
  const GroupCase group = bytes_case(random, {}, 64, 64, 64, After::nothing);
  for (const int capability : {75, 80, 86, 89, 90, 100, 120}) {
    const Machine machine = machine_of(typical_device(capability));
    EXPECT_EQ(group.accepted(kGemmSm90, machine), capability == 90) << capability;
    EXPECT_EQ(group.accepted(kGemmMma, machine), capability >= 80 && capability != 90)
        << capability;
    EXPECT_EQ(group.accepted(kGemmPlain, machine), capability < 80) << capability;
  }
}

// As fast as f16 at least, and for large ones half the time.
TEST(GemmBytes, TheModelsKnowTheirRate) {
  for (const std::int64_t m : {197, 12608})
    for (const int capability : {80, 89, 90, 120}) {
      const Machine machine = machine_of(typical_device(capability));
      GemmProblem p{1, m, 768, 3072, 2, 2, 1, 0};
      const auto time = [&] {
        if (machine.has_wgmma)
          return model_gemm_sm90(p, gemm_sm90_schedules(p, machine).front(), machine).total;
        const Multiplier multiplier = p.item_bytes == 1 ? Multiplier::bytes : Multiplier::mma;
        const TileSchedule best = gemm_tile_schedules(p, multiplier, machine).front();
        return model_gemm_tiles(p, best, multiplier, machine).total;
      };
      const double of_halves = time();
      p.item_bytes = 1;
      EXPECT_LT(time(), (m > 1000 ? 0.75 : 1) * of_halves) << capability << ' ' << m;
    }
}

struct Drawn {
  BytesProduct product;
  const Family* family;
  int capability;
};

// A product of any extents, by a family at a time.
Drawn any_product(Generator& random, std::mt19937& draw, int turn) {
  const auto pick = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(draw);
  };
  constexpr std::pair<const Family*, int> kFamilies[] = {
      {&kGemmSm90, 90}, {&kGemmMma, 80}, {&kGemmPlain, 75}};
  const auto& [family, capability] = kFamilies[turn % 3];
  return {bytes_product(random, turn % 4 == 3 ? Shape{pick(2, 3)} : Shape{}, pick(1, 300),
                        pick(1, 400), pick(1, 700), kAfter[pick(0, 2)], pick(0, 3) > 0),
          family, capability};
}

TEST(GemmBytes, AnyProductsBySchedulesAtRandomAreRight) {
  Generator random(static_cast<std::uint64_t>(check::seed()));
  std::mt19937 draw(static_cast<unsigned>(check::seed()));
  for (int turn = 0; turn < 9 && !HasFailure(); ++turn) {
    const auto [product, family, capability] = any_product(random, draw, turn);
    const int processors = turn % 2 == 0 ? 4 : 132;
    expect_right_at_random({"product " + std::to_string(turn), family, product.function,
                            product.inputs, processors, capability},
                           1, draw);
  }
}

TEST(GemmBytes, SchedulesAtRandomCompileWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Generator random(13);
  std::mt19937 draw(14);
  const std::size_t count = std::max<std::size_t>(more_schedules(), 1);
  for (const std::int64_t m : {197, 1576})
    for (const After after : {After::bias_and_gelu, After::residual})
      for (const auto& [n, k] : {std::pair{3072, 768}, {768, 3072}}) {
        const GroupCase group = bytes_case(random, {}, m, n, k, after);
        const Isolated alone = isolate(group.laid(), group.group());
        const auto space = space_of(kGemmSm90, alone.laid, alone.group, h200());
        ASSERT_TRUE(space);
        for (const Schedule& s : drawn(*space, count, draw))
          expect_compiles(kGemmSm90, alone, s, h200());
      }
}

TEST(GemmBytes, CompilesWithoutSpills) {
  if (const std::string reason = no_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  Generator random(10);
  const auto compile = [&](GroupCase& group, const GroupCase::Lower& lower, int capability) {
    const Machine machine = machine_of(typical_device(capability));
    for (const Call& call : lower(group.laid(), group.group(), machine).calls)
      expect_no_trouble(call.source, machine.device.architecture());
  };
  GroupCase gelu = bytes_case(random, {}, 197, 768, 768, After::bias_and_gelu),
            sum = bytes_case(random, {}, 197, 768, 768, After::residual),
            odd = bytes_case(random, {}, 197, 91, 77, After::nothing),
            rounded = bytes_case(random, {}, 197, 768, 768, After::bytes);
  for (const int capability : {75, 80, 86, 89, 100, 120}) {
    const bool is_plain = capability == 75;
    compile(gelu, by_tiles(is_plain ? TileSchedule{128, 64, 4, 1, 1, 2} : kByteTiles[0], is_plain),
            capability);
    compile(odd, by_tiles(is_plain ? TileSchedule{64, 32, 2, 1, 1, 2, 2} : kByteTiles[8], is_plain),
            capability);
  }
  for (const TileSchedule& s : kByteTiles) compile(sum, by_tiles(s), 80);
  compile(rounded, by_tiles(kByteTiles[0]), 80);
  for (GroupCase* group : {&gelu, &sum, &rounded})
    for (const GemmSchedule& s : byte_schedules())
      if (fault(s, *group).empty()) compile(*group, by(s), 90);
  for (const std::int64_t m : {197, 577, 12608})
    for (const auto& [n, k] : {std::pair{2304, 768}, {768, 3072}, {5120, 1280}})
      for (const After after : {After::bias_and_gelu, After::residual}) {
        const Shape batch = m > 1000 ? Shape{64} : Shape{};
        const GroupCase group = bytes_case(random, batch, m > 1000 ? 197 : m, n, k, after);
        const auto best = gemm_sm90_schedules(problem_of(group.laid(), group.group()), h200());
        for (std::size_t i = 0; i < std::min<std::size_t>(best.size(), 3); ++i)
          expect_no_trouble(
              lower_gemm_sm90(group.laid(), group.group(), h200(), best[i]).calls.back().source,
              "sm_90a");
      }
}

TEST(GemmBytesOnGpu, TilesAreRight) {
  if (const std::string why = emulator::no_device(80); !why.empty()) GTEST_SKIP() << why;
  Generator random(11);
  for (const After after : kAfter) {
    GroupCase group = bytes_case(random, {}, 197, 320, 776, after),
              odd = bytes_case(random, {2}, 63, 91, 269, after);
    for (const TileSchedule& s : kByteTiles) {
      SCOPED_TRACE(s.name());
      emulator::expect_on_device(group, by_tiles(s));
      emulator::expect_on_device(odd, by_tiles(s));
    }
    emulator::expect_on_device(group, by_tiles({64, 64, 2, 1, 3}, true));
  }
  GroupCase large = large_sums(8192);
  emulator::expect_on_device(large, by_tiles(kByteTiles[3]));
}

constexpr std::int64_t kTokensOnGpu[] = {1, 65, 197, 3000};

GroupCase case_on_gpu(Generator& random, std::int64_t m, After after) {
  return bytes_case(random, {}, m, 1544, 784, after);
}

// Each a case of its own, so that several processes can share them out: each compiles kernels.
class GemmBytesSm90OnGpu : public ::testing::TestWithParam<GemmSchedule> {};

TEST_P(GemmBytesSm90OnGpu, IsRight) {
  if (const std::string why = emulator::no_device(90, true); !why.empty()) GTEST_SKIP() << why;
  Generator random(12);
  for (const After after : kAfter)
    for (const std::int64_t m : kTokensOnGpu) {
      GroupCase group = case_on_gpu(random, m, after);
      SCOPED_TRACE(std::to_string(m) + " tokens");
      if (fault(GetParam(), group).empty()) emulator::expect_on_device(group, by(GetParam()));
    }
}

INSTANTIATE_TEST_SUITE_P(Schedules, GemmBytesSm90OnGpu, ::testing::ValuesIn(byte_schedules()),
                         [](const auto& schedule) { return schedule.param.name(128); });

TEST(GemmBytesOnGpu, WhatHopperChoosesIsRight) {
  if (const std::string why = emulator::no_device(90, true); !why.empty()) GTEST_SKIP() << why;
  Generator random(12);
  for (const After after : kAfter)
    for (const std::int64_t m : kTokensOnGpu) {
      GroupCase group = case_on_gpu(random, m, after);
      emulator::expect_on_device(group, kGemmSm90);
    }
  GroupCase large = large_sums(8192);
  emulator::expect_on_device(large, kGemmSm90);
}

}  // namespace
}  // namespace tensor::cuda

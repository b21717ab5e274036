// Kernels that take their problem's extents as an argument: one text serves problems of many sizes,
// and divides by numbers that it does not know as exactly as by those it does.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/kernels/cuda/attention/sm90.h"
#include "src/kernels/cuda/families.h"
#include "src/kernels/cuda/gemm/sm90.h"
#include "src/kernels/cuda/templates/divisor.h"
#include "tensor/tensor.h"
#include "tests/cuda/attention_cases.h"
#include "tests/cuda/emulator/group_case.h"
#include "tests/cuda/emulator/trial.h"
#include "tests/families.h"
#include "tests/seed.h"

namespace tensor::cuda {
namespace {

using device::Divisor;
using emulator::Tensors;

constexpr int kMostInt = INT32_MAX;

// Those where a quotient changes, and the ends.
std::vector<int> edges_of(int divisor, std::mt19937& random) {
  std::set<std::int64_t> all = {0, 1, kMostInt, kMostInt - 1, divisor - 1, divisor, divisor + 1LL};
  const std::int64_t most = kMostInt / divisor;
  for (const auto quotient : {std::int64_t{1}, std::int64_t{2}, most - 1, most,
                              static_cast<std::int64_t>(random()) % (most + 1)})
    for (const int step : {-1, 0, 1}) all.insert(quotient * divisor + step);
  std::vector<int> edges;
  for (const std::int64_t x : all)
    if (x >= 0 && x <= kMostInt) edges.push_back(static_cast<int>(x));
  for (int i = 0; i < 20; ++i) edges.push_back(static_cast<int>(random() >> 1));
  return edges;
}

std::vector<int> divisors(std::mt19937& random) {
  std::vector<int> all = {kMostInt, kMostInt - 1, kMostInt / 2, kMostInt / 2 + 1, kMostInt / 3};
  for (int d = 1; d <= 2100; ++d) all.push_back(d);
  for (int shift = 1; shift < 31; ++shift)
    for (const int step : {-1, 0, 1})
      if ((1 << shift) + step > 0) all.push_back((1 << shift) + step);
  for (int i = 0; i < 2000; ++i)
    all.push_back(std::max(1, static_cast<int>(random() >> (1 + random() % 31))));
  return all;
}

TEST(Divisors, AreExactOnTheHost) {
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  for (const int d : divisors(random)) {
    const Divisor divisor = Divisor::of(d);
    for (const int x : edges_of(d, random)) {
      ASSERT_EQ(x / divisor, x / d) << x << " / " << d;
      ASSERT_EQ(x % divisor, x % d) << x << " % " << d;
      ASSERT_EQ(static_cast<unsigned>(x) / divisor, static_cast<unsigned>(x / d))
          << x << " / " << d;
      ASSERT_EQ(static_cast<unsigned>(x) % divisor, static_cast<unsigned>(x % d))
          << x << " % " << d;
    }
  }
}

TEST(Divisors, AreExactInKernels) {
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  for (const int d :
       {1, 2, 3, 7, 197, 1 << 20, 641 * 1333, kMostInt / 2 + 1, kMostInt - 1, kMostInt}) {
    std::vector<int> in = edges_of(d, random);
    in.resize(64, 5);
    std::vector<int> out(2 * in.size());
    const emulator::Trial trial{
        "#include \"divisor.h\"\n"
        "extern \"C\" __global__ void trial(const int* in, int* out, const __grid_constant__ "
        "Divisor "
        "d) {\n  wait_for_previous();\n  const int i = threadIdx.x;\n"
        "  out[i] = in[i] / d;\n  out[64 + i] = in[i] % d;\n}\n",
        {.block = {64}},
        {value_argument(Divisor::of(d))}};
    trial(in, out);
    for (std::size_t i = 0; i < in.size(); ++i) {
      EXPECT_EQ(out[i], in[i] / d) << in[i] << " / " << d;
      EXPECT_EQ(out[in.size() + i], in[i] % d) << in[i] << " % " << d;
    }
  }
}

// ---- One text for several sizes.

Tensor normal_numbers(const Shape& shape, DType dtype) {
  static Generator random(static_cast<std::uint64_t>(check::seed()));
  return random.normal(shape).astype(dtype);
}

// From `from` on, odd, and none twice.
std::vector<std::int64_t> odd_sizes(std::int64_t from, std::int64_t to, std::size_t count) {
  static std::mt19937 random(static_cast<unsigned>(check::seed()));
  std::set<std::int64_t> sizes;
  while (sizes.size() < count)
    if (const std::int64_t size = from + random() % (to - from); size % 2 == 1) sizes.insert(size);
  return {sizes.begin(), sizes.end()};
}

using Make = std::function<emulator::GroupCase(std::int64_t size)>;

// Groups of these sizes are right, and have the same texts.
void expect_one_text(const std::vector<std::int64_t>& sizes, const Make& make,
                     const emulator::GroupCase::Lower& lower, int capability) {
  Machine machine = machine_of(typical_device(capability));
  machine.any_extent = true;
  std::set<std::vector<std::string>> texts;
  for (const std::int64_t size : sizes) {
    SCOPED_TRACE("size " + std::to_string(size));
    emulator::GroupCase group = make(size);
    const Lowered lowered = lower(group.laid(), group.group(), machine);
    std::vector<std::string> of_calls;
    for (const Call& call : lowered.calls) of_calls.push_back(call.source.text);
    texts.insert(std::move(of_calls));
    group.check(lowered, [&](const Lowered& l, std::span<const emulator::Operand> operands,
                             std::span<const Tensor> packed) {
      emulator::emulate(l, operands, packed, {capability, {1, machine.device.shared_block_bytes}});
    });
  }
  EXPECT_EQ(texts.size(), 1u);
}

emulator::GroupCase::Lower lowered_by(const Family& family) {
  return [&family](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
    return built_by(family, laid, group, machine);
  };
}

emulator::GroupCase sized_product(std::int64_t rows, DType dtype) {
  const Tensor weights = normal_numbers({72, 136}, dtype), bias = normal_numbers({136}, f32);
  return emulator::GroupCase(
      [=](const Tensors& in) -> Tensors {
        return {relu(matmul(in[0], weights).astype(f32) + bias + in[1]).astype(dtype)};
      },
      {normal_numbers({rows, 72}, dtype), normal_numbers({rows, 136}, f32)});
}

TEST(OneText, OfProductsOnHopper) {
  const GemmSchedule schedules[] = {
      {64, 128, 4, 1, 1, false},
      {40, 64, 4, 1, 1, true},
      {.tile_m = 48, .tile_n = 64, .stages = 2, .swapped = true, .splits = 2},
      {.tile_m = 128, .tile_n = 128, .stages = 3, .groups = 2, .shares = 2}};
  for (const GemmSchedule& schedule : schedules) {
    SCOPED_TRACE(schedule.name());
    expect_one_text(
        odd_sizes(51, 300, 3), [](std::int64_t rows) { return sized_product(rows, f16); },
        [&](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
          return lower_gemm_sm90(laid, group, machine, schedule);
        },
        90);
  }
}

TEST(OneText, OfAttentionOnHopper) {
  const auto lower = [](AttentionSchedule schedule) {
    return [=](const LaidOutGraph& laid, const Group& group, const Machine& machine) {
      return lower_attention_sm90(laid, group, machine, schedule);
    };
  };
  const auto make = [](std::int64_t keys) {
    return emulator::attention_case({2, 3, keys + 6, keys, 32, false, 1, f16});
  };
  expect_one_text({65, 71, 79}, make, lower({1, 2, 80, 1}), 90);  // whole rows
  expect_one_text(odd_sizes(81, 200, 3), make, lower({1, 1, 80, 2}), 90);
  expect_one_text(odd_sizes(97, 200, 3), make,
                  lower({.groups = 1, .tiles = 1, .block = 48, .stages = 2, .parts = 2}), 90);
}

// Channels last, 64 of them: what Hopper's own kernel takes; 24 go the way of older GPUs.
emulator::GroupCase sized_conv(std::int64_t side, std::int64_t channels, DType dtype) {
  const Tensor weights = normal_numbers({40, channels, 3, 3}, dtype),
               bias = normal_numbers({40, 1, 1}, f32);
  return emulator::GroupCase(
      [=](const Tensors& in) -> Tensors {
        const Tensor image = transpose(in[0], {0, 3, 1, 2});
        const Conv2dOptions options{2, 1};
        return {relu(conv2d(image, weights, {}, options).astype(f32) + bias).astype(dtype)};
      },
      {normal_numbers({2, side, side + 4, channels}, dtype)});
}

TEST(OneText, OfConvolutions) {
  for (const int capability : {90, 80, 75}) {
    SCOPED_TRACE(capability);
    expect_one_text(
        odd_sizes(13, 26, 3), [](std::int64_t side) { return sized_conv(side, 64, f16); },
        lowered_by(kConv), capability);
  }
  expect_one_text(
      odd_sizes(9, 16, 3), [](std::int64_t side) { return sized_conv(side, 5, f32); },
      lowered_by(kConv), 80);
}

TEST(OneText, OfGeneratedKernels) {
  expect_one_text(
      odd_sizes(11, 60, 4),
      [](std::int64_t rows) {
        const Tensor gain = normal_numbers({64}, f32), shift = normal_numbers({64}, f32);
        return emulator::GroupCase(
            [=](const Tensors& in) -> Tensors {
              return {layer_norm(in[0] + in[1], gain, shift, 1e-5).astype(f16)};
            },
            {normal_numbers({2, rows, 64}, f32), normal_numbers({rows, 64}, f32)});
      },
      lowered_by(kRow), 90);
  expect_one_text(
      odd_sizes(35, 64, 3),
      [](std::int64_t columns) {
        return emulator::GroupCase(
            [](const Tensors& in) -> Tensors { return {softmax(in[0], -1)}; },
            {normal_numbers({columns + 2, columns}, f32)});
      },
      lowered_by(kRow), 80);
  expect_one_text(
      odd_sizes(7, 40, 4),
      [](std::int64_t side) {
        return emulator::GroupCase(
            [](const Tensors& in) -> Tensors {
              return {in[0] + transpose(in[1], {1, 0, 2})};
            },
            {normal_numbers({side, side + 2, 5}, f32), normal_numbers({side + 2, side, 5}, f32)});
      },
      lowered_by(kPointwise), 90);
  expect_one_text(
      odd_sizes(7, 30, 4),
      [](std::int64_t rows) {
        return emulator::GroupCase(
            [](const Tensors& in) -> Tensors {
              return {concatenate({in[0], in[1]}, 1)};
            },
            {normal_numbers({3, 1, 8}, f32), normal_numbers({3, rows, 8}, f32)});
      },
      lowered_by(kCopy), 90);
  expect_one_text(
      odd_sizes(9, 30, 4),
      [](std::int64_t side) {
        return emulator::GroupCase(
            [](const Tensors& in) -> Tensors { return {max_pool2d(in[0], 3, 2, 1)}; },
            {normal_numbers({2, 3, side, side + 6}, f32)});
      },
      lowered_by(kImage), 90);
  expect_one_text(
      odd_sizes(301, 500, 4),
      [](std::int64_t rows) {
        return emulator::GroupCase([](const Tensors& in) -> Tensors { return {mean(in[0], {0})}; },
                                   {normal_numbers({rows, 7}, f32)});
      },
      lowered_by(kReduce), 90);
  expect_one_text(
      odd_sizes(33, 90, 3),
      [](std::int64_t length) {
        return emulator::GroupCase([](const Tensors& in) -> Tensors { return {cumsum(in[0], 1)}; },
                                   {normal_numbers({length + 1, length}, f32)});
      },
      lowered_by(kScan), 90);
  expect_one_text(
      odd_sizes(2100, 4000, 3),
      [](std::int64_t length) {
        return emulator::GroupCase([](const Tensors& in) -> Tensors { return {argsort(in[0], 1)}; },
                                   {normal_numbers({2, length}, f32)});
      },
      lowered_by(kSort), 90);
  expect_one_text(
      odd_sizes(33000, 40000, 2),
      [](std::int64_t length) {
        return emulator::GroupCase([](const Tensors& in) -> Tensors { return {softmax(in[0], 1)}; },
                                   {normal_numbers({2, length}, f32)});
      },
      lowered_by(kRow), 90);
}

// ---- Schedules of other sizes, which their own would not try.

// Of `size` on the emulator, by random schedules of other sizes that are not in its space.
void expect_right_by_others(const Family& family, const Make& make, std::int64_t size,
                            const std::vector<std::int64_t>& others) {
  constexpr std::size_t kMost = 2;  // of each other size: each is a kernel to compile
  SCOPED_TRACE(family.name);
  std::mt19937 random(static_cast<unsigned>(check::seed()));
  Machine machine = machine_of(typical_device(90));
  machine.any_extent = true;
  emulator::GroupCase group = make(size);
  const Space space = *space_of(family, group.laid(), group.group(), machine);
  std::size_t all = 0;
  for (const std::int64_t other : others) {
    const emulator::GroupCase larger = make(other);
    std::vector<Schedule> schedules =
        space_of(family, larger.laid(), larger.group(), machine)->all();
    std::erase_if(schedules, [&](const Schedule& s) { return space.has(s) || !space.runs(s); });
    std::shuffle(schedules.begin(), schedules.end(), random);
    schedules.resize(std::min(schedules.size(), kMost));
    all += schedules.size();
    for (const Schedule& schedule : schedules) {
      SCOPED_TRACE(schedule.text());
      Group as_other = group.group();
      as_other.schedule = schedule.text();
      const Lowered lowered = built_by(family, group.laid(), as_other, machine),
                    own = built_by(family, group.laid(), group.group(), machine);
      EXPECT_NE(lowered.calls.back().entry, own.calls.back().entry) << "it is taken";
      group.check(lowered, [&](const Lowered& l, std::span<const emulator::Operand> operands,
                               std::span<const Tensor> packed) {
        emulator::emulate(l, operands, packed, {90, {1, machine.device.shared_block_bytes}});
      });
    }
  }
  EXPECT_GE(all, 2u);
}

TEST(SchedulesOfOtherSizes, AreRight) {
  expect_right_by_others(kGemmSm90, [](std::int64_t rows) { return sized_product(rows, f16); }, 77,
                         {23, 171, 251});
  expect_right_by_others(
      kAttentionSm90,
      [](std::int64_t keys) {
        return emulator::attention_case({2, 3, keys + 6, keys, 32, false, 1, f16});
      },
      149, {41, 97, 233});
  expect_right_by_others(kConv, [](std::int64_t side) { return sized_conv(side, 64, f16); }, 17,
                         {120});
}

}  // namespace
}  // namespace tensor::cuda

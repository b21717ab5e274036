// What a tuner needs on a GPU: operands that are made there, results that are compared there, and
// candidates whose reference has slices alone.
#include <cstring>
#include <deque>
#include <limits>

#include "src/core/storage.h"
#include "src/trace/parallel.h"
#include "src/trace/trace.h"
#include "src/tune/gpu_difference.h"
#include "src/tune/gpu_loop.h"
#include "src/tune/gpu_measurer.h"
#include "src/tune/sampler.h"
#include "tests/device/gpu.h"
#include "tests/error_of.h"
#include "tests/families.h"

namespace tensor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class TrialsOnGpu : public OnGpu {
 protected:
  // Every second column of a part of the memory, turned: 17 x 7 of 280 elements.
  static OperandBlock columns_of(const Tensor& memory) {
    OperandBlock block;
    block.memory = memory;
    block.value = memory.reshape({7, 40})(all_of_axis, slice(3, 36, 2)).transpose();
    return block;
  }
  static GpuDifference::Found found_between(const OperandBlock& got, const OperandBlock& expected) {
    cuda::Device& device = cuda::Device::get();
    const std::vector<OperandBlock> blocks = {got, expected};
    DeviceOperands there(device, blocks);
    there.upload(blocks);
    const auto first = [&](std::size_t i) {
      return there.address(i) + static_cast<cuda::Address>(blocks[i].first_at());
    };
    return GpuDifference(device)(got.value, first(0), first(1));
  }
  // A group of many images, of which a reference has three.
  struct Images {
    LaidOutGraph laid = lay_out(
        trace([](const Tensors& in) -> Tensors { return {gelu(linear(in[0], in[2])) + in[1]}; },
              {{{40, 7, 16}, f16}, {{40, 7, 24}, f16}, {{24, 16}, f16}}));
    detail::Target target = detail::cuda_target(cuda::Device::get().info());
    FusionPlan plan = fuse(propose_parallel(laid), target.cost());

    // Of all families that take it.
    void emplace_in(std::deque<Problem>& problems) const {
      Isolated alone = isolate(laid, plan.groups.front());
      std::vector<Offer> offers = offers_of(target, alone);
      problems.emplace_back("images", std::move(alone), std::move(offers), 1e9, 2000);
    }
  };
};

TEST_F(TrialsOnGpu, FindTheLargestDifferenceWhereverItIs) {
  for (const DType dtype : {f32, f16, bf16, f64}) {
    const Tensor memory = random_.normal({280}).astype(dtype);
    const OperandBlock expected = columns_of(memory), same = columns_of(memory.copy());
    const double largest = max(abs(expected.value.astype(f64))).item<double>();
    GpuDifference::Found found = found_between(same, expected);
    EXPECT_EQ(found.difference, 0);
    EXPECT_EQ(found.largest, largest);
    for (std::int64_t i = 0; i < memory.size(); i += 13) {
      OperandBlock got = columns_of(memory.copy());
      const bool is_element = i % 40 >= 3 && i % 40 < 36 && i % 2 == 1;
      got.memory(i) = 9;
      found = found_between(got, expected);
      EXPECT_EQ(found.difference,
                is_element ? std::abs(9 - memory(i).astype(f64).item<double>()) : 0)
          << i;
      got.memory(i) = kNaN;
      EXPECT_EQ(found_between(got, expected).difference, is_element ? kInfinity : 0);
      EXPECT_EQ(found_between(expected, got).difference, is_element ? kInfinity : 0);
      EXPECT_EQ(found_between(got, got).difference, 0);
      got.memory(i) = -kInfinity;
      EXPECT_EQ(found_between(got, expected).difference, is_element ? kInfinity : 0);
      EXPECT_LE(found_between(expected, got).largest, largest);
    }
  }
}

TEST_F(TrialsOnGpu, CompareWholeNumbers) {
  const Tensor numbers = arange(280) * (std::int64_t{1} << 40);
  const OperandBlock expected = columns_of(numbers), got = columns_of(numbers.copy());
  got.memory(45) = 0;
  EXPECT_EQ(found_between(got, expected).difference, 45 * 0x1p40);
  EXPECT_EQ(found_between(expected, expected).largest, (6 * 40 + 35) * 0x1p40);
  const OperandBlock yes = columns_of(ones({280}, boolean)), no = columns_of(zeros({280}, boolean));
  EXPECT_EQ(found_between(yes, no).difference, 1);
}

// Of many random numbers a period is copied; the device makes all of them.
TEST_F(TrialsOnGpu, ReadsAreThoseOfTheHost) {
  const LaidOutGraph laid =
      lay_out(trace([](const Tensors& in) -> Tensors { return {in[0] + in[1]}; },
                    {{{20, 700, 90}, f16}, {{90}, f16}}));
  const FusionPlan plan =
      fuse(propose_parallel(laid), cuda::cuda_cost(cuda::machine_of(cuda::typical_device(90))));
  const Isolated alone = isolate(laid, plan.groups.front());
  const Reference reference(alone, 1 << 10);
  ASSERT_FALSE(reference.is_whole());
  const std::vector<OperandBlock> outlines = reference.outlines();
  EXPECT_GT(outlines[0].period, 0);
  DeviceOperands there(cuda::Device::get(), outlines);
  there.upload(std::span(outlines).first(2));
  const std::vector<OperandBlock> all = operands_of(alone), same = reference.operands();
  for (std::size_t i = 0; i < all.size(); ++i) {
    OperandBlock got = all[i];
    got.memory = got.memory.copy();
    there.download(got, i, got.all());
    EXPECT_EQ(std::memcmp(got.bytes().data(), all[i].bytes().data(), all[i].bytes().size()), 0);
    EXPECT_EQ(std::memcmp(same[i].bytes().data(), all[i].bytes().data(), all[i].bytes().size()), 0);
  }
}

TEST_F(TrialsOnGpu, CandidatesAreCheckedBesideLevel0) {
  const Images images;
  ASSERT_EQ(images.plan.groups.size(), 1u);
  std::deque<Problem> problems;
  images.emplace_in(problems);
  ASSERT_FALSE(problems[0].reference().is_whole());
  const Measuring how = gpu_measuring(0, problems);
  const Space& space = problems[0].space();
  std::vector<Schedule> schedules = {space.chosen};
  Random random(3);
  const Sampler sampler(space);
  while (schedules.size() < 3) schedules.push_back(sampler.sample(random));
  schedules.push_back(space.chosen);
  for (const Schedule& schedule : schedules) {
    const std::unique_ptr<Trial> trial = how.make({0, schedule});
    trial->compile();
    EXPECT_EQ(check::error_of<Error>([&] { trial->check(); }), "no error") << schedule.text();
    trial->rest();
    EXPECT_GT(trial->time(), 0);
  }
}

}  // namespace
}  // namespace tensor

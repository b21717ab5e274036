// References that know some slices of a large problem, and take a kernel's word for the rest.
#include "src/tune/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "src/core/storage.h"
#include "src/kernels/cpu/families.h"
#include "src/trace/trace.h"
#include "src/tune/reference.h"
#include "tensor/tensor.h"
#include "tests/error_of.h"
#include "tests/families.h"

namespace tensor {
namespace {

using Tensors = std::vector<Tensor>;

// A group of many images, and its results by level 0's kernel.
struct Images {
  Generator random{14};
  Tensor weight = random.normal({24, 12}, 0, 0.2);
  LaidOutGraph laid = lay_out(
      trace([this](const Tensors& in) -> Tensors { return {gelu(linear(in[0], weight)) + in[1]}; },
            {{{40, 7, 12}, f32}, {{40, 7, 24}, f32}}));
  FusionPlan plan = fuse(propose_parallel(laid), cpu::cpu_cost(cpu::this_machine(2)));
  Isolated alone = isolate(laid, plan.groups.front());

  std::vector<OperandBlock> run(const Reference& reference) const {
    std::vector<OperandBlock> operands = reference.operands();
    const auto kernel = cpu::build_group(alone.laid, alone.group, cpu::this_machine(2));
    std::vector<std::byte*> addresses;
    for (const OperandBlock& operand : operands) addresses.push_back(operand.first());
    const auto scratch = detail::allocate(static_cast<std::int64_t>(kernel->scratch_bytes()));
    kernel->run(addresses, scratch->data);
    return operands;
  }
};

// Of 40 images with effort for six: what is not among them is compared with level 0's results.
TEST(ReferenceOfSlices, FindsAnErrorInAnyElement) {
  const Images example;
  ASSERT_EQ(example.plan.groups.size(), 1u);
  const Reference whole(example.alone);
  ASSERT_TRUE(whole.is_whole());
  const Reference reference(example.alone, 2000);
  ASSERT_FALSE(reference.is_whole());
  int asked = 0;
  const Reference::Trusted level0 = [&] {
    ++asked;
    return example.run(reference);
  };
  std::vector<OperandBlock> operands = example.run(reference);
  EXPECT_EQ(whole.fault(operands), "");
  EXPECT_EQ(reference.fault(operands, level0), "");
  float* const elements = reinterpret_cast<float*>(operands.back().first());
  int by_level0 = 0;
  for (std::int64_t i = 0; i < operands.back().value.size(); i += 5) {
    const float right = elements[i];
    for (const float wrong : {right + 0.01f, std::numeric_limits<float>::quiet_NaN()}) {
      elements[i] = wrong;
      const std::string fault = reference.fault(operands, level0);
      EXPECT_NE(fault.find("wrong result"), std::string::npos) << i;
      by_level0 += fault.find("level 0") != std::string::npos;
    }
    elements[i] = right;
  }
  // Of 2 x 34 images that the reference does not have, and no other.
  const std::int64_t looked_at = operands.back().value.size() / 5;
  EXPECT_GT(by_level0, 2 * looked_at * 30 / 40);
  EXPECT_LT(by_level0, 2 * looked_at * 38 / 40);
  EXPECT_EQ(asked, 1);
}

// Whatever is wrong with level 0, nothing counts as right because of it.
TEST(ReferenceOfSlices, TrustsNobodyWhoseSlicesAreWrong) {
  const Images example;
  const Reference reference(example.alone, 2000);
  const std::vector<OperandBlock> operands = example.run(reference);
  const auto spoilt = [&] {
    std::vector<OperandBlock> wrong = example.run(reference);
    reinterpret_cast<float*>(wrong.back().first())[1] += 0.01f;
    return wrong;
  };
  const auto crashing = []() -> std::vector<OperandBlock> { fail("level 0", "crashed"); };
  EXPECT_NE(check::error_of([&] { reference.fault(operands, spoilt); }).find("wrong result"),
            std::string::npos);
  EXPECT_NE(check::error_of([&] { reference.fault(operands, crashing); }).find("crashed"),
            std::string::npos);
  EXPECT_THROW(reference.fault(operands), InternalError);
  EXPECT_EQ(reference.fault(operands, [&] { return example.run(reference); }), "");
}

TEST(Slices, AreTakenWhereTheyDoNotDependOnEachOther) {
  Generator random(15);
  const Tensor weight = random.normal({8, 6}), filters = random.normal({5, 6, 3, 3}),
               gain = random.normal({6}), many = random.normal({20, 4, 6});
  const auto sliced = [](const TensorFunction& f, const Shape& shape) {
    const LaidOutGraph laid = lay_out(trace(f, {{shape, f32}}));
    Group group = no_fusion(laid, cpu::cpu_cost(cpu::this_machine(1))).groups.back();
    const auto slices = Slices::of(isolate(laid, group), 1);
    if (slices) {
      EXPECT_EQ(slices->indices().size(), 3u);
      EXPECT_EQ(slices->indices().front(), 0);
      EXPECT_EQ(slices->indices().back(), shape[0] - 1);
      EXPECT_TRUE(std::is_sorted(slices->indices().begin(), slices->indices().end()));
    }
    return slices.has_value();
  };
  const Shape rows{20, 4, 6}, images{20, 6, 9, 9};
  EXPECT_TRUE(sliced([&](const Tensors& in) -> Tensors { return {exp(in[0])}; }, rows));
  EXPECT_TRUE(sliced([&](const Tensors& in) -> Tensors { return {linear(in[0], weight)}; }, rows));
  EXPECT_TRUE(sliced([&](const Tensors& in) -> Tensors { return {softmax(in[0], 1)}; }, rows));
  EXPECT_TRUE(
      sliced([&](const Tensors& in) -> Tensors { return {layer_norm(in[0], gain)}; }, rows));
  EXPECT_TRUE(
      sliced([&](const Tensors& in) -> Tensors { return {conv2d(in[0], filters)}; }, images));
  EXPECT_TRUE(sliced([&](const Tensors& in) -> Tensors { return {max_pool2d(in[0], 2)}; }, images));
  EXPECT_FALSE(sliced([&](const Tensors& in) -> Tensors { return {softmax(in[0], 0)}; }, rows));
  EXPECT_FALSE(sliced([&](const Tensors& in) -> Tensors { return {cumsum(in[0], 0)}; }, rows));
  EXPECT_FALSE(sliced([&](const Tensors& in) -> Tensors { return {sum(in[0], {0})}; }, rows));
  EXPECT_FALSE(sliced([&](const Tensors& in) -> Tensors { return {in[0] + many}; }, rows));
  EXPECT_FALSE(sliced([&](const Tensors& in) -> Tensors { return {linear(in[0], weight)}; },
                      {5, 4, 6}));  // three of five are as good as all
  // As many rows as columns: which axis is which shows in the types of the slices.
  EXPECT_FALSE(
      sliced([&](const Tensors& in) -> Tensors { return {matmul(in[0], in[0] * 2)}; }, {20, 20}));
}

}  // namespace
}  // namespace tensor

// What compiling does to weights on the host, beside the reference operators.
#include "src/kernels/host/weights.h"

#include <gtest/gtest.h>

#include <random>

#include "tensor/tensor.h"

namespace tensor::cpu {
namespace {

// Every bit pattern is as likely as any other: infinities, NaNs and subnormal numbers too.
Tensor random_bits(const Shape& shape) {
  static std::mt19937 random(20261122);
  const Tensor x = empty(shape, f32);
  auto* bits = reinterpret_cast<std::uint32_t*>(Tensor(x).mutable_data<float>());
  for (std::int64_t i = 0; i < x.size(); ++i) bits[i] = static_cast<std::uint32_t>(random());
  return x;
}

// Of every NaN the same.
std::vector<std::uint16_t> bits_of(const Tensor& x) {
  const Tensor rows = where(isnan(x), full({}, std::nan(""), x.dtype()), x);
  const auto* first = rows.dtype() == f16
                          ? reinterpret_cast<const std::uint16_t*>(rows.data<Float16>())
                          : reinterpret_cast<const std::uint16_t*>(rows.data<BFloat16>());
  return {first, first + rows.size()};
}

TEST(CpuWeights, ConvertsToTheBitsOfTheReference) {
  const Tensor large = random_bits({300, 700}), image = random_bits({6, 5, 3, 3});
  const std::vector<Tensor> cases = {large,
                                     transpose(large),
                                     transpose(image, {2, 3, 1, 0}),
                                     large(slice(0, 300, 2)),
                                     broadcast_to(large(slice(0, 1)), {4, 700}),
                                     random_bits({}),
                                     random_bits({0, 3})};
  for (const Tensor& x : cases)
    for (const DType dtype : {f16, bf16}) {
      SCOPED_TRACE(::testing::Message() << x.type() << " to " << dtype);
      const Tensor result = converted(x, dtype, 3);
      EXPECT_EQ(result.type(), x.astype(dtype).type());
      EXPECT_EQ(bits_of(result), bits_of(x.astype(dtype)));
    }
}

TEST(CpuWeights, KeepTheOrderOfTheirElements) {
  const Tensor x = random_bits({30, 70});
  EXPECT_EQ(converted(transpose(x), bf16, 2).strides(), transpose(x).strides());
}

TEST(CpuWeights, SpreadLeavesZerosBetween) {
  const Tensor x = Generator(3).normal({5, 7, 4});
  const Tensor result = spread(transpose(x, {0, 2, 1}), {5, 40}, {40, 8, 1}, 2);
  const Tensor expected = pad(
      reshape(pad(transpose(x, {0, 2, 1}), {{0, 0}, {0, 0}, {0, 1}}), {5, 32}), {{0, 0}, {0, 8}});
  EXPECT_EQ(result.to_vector<float>(), expected.to_vector<float>());
}

TEST(CpuWeights, SpreadCopiesOnlyWhatMoves) {
  const Tensor x = Generator(4).normal({6, 8});
  EXPECT_EQ(spread(x, {6, 8}, {8, 1}, 1).data<float>(), x.data<float>());
  const Tensor turned = spread(x, {8, 6}, {1, 6}, 1);  // as many elements, in another order
  EXPECT_EQ(turned.to_vector<float>(), transpose(x).to_vector<float>());
}

}  // namespace
}  // namespace tensor::cpu

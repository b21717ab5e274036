// Random numbers: Philox's published answers, the same on every machine, and the distributions'
// moments.
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/tensor.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;

// The first of Random123's known answers for philox4x32-10: counter 0 and key 0 give 6627e8d5
// e169c58d bc57ac4c 9b00dbd8.
TEST(Random, IsPhilox) {
  Generator generator(0);
  const std::uint64_t first = 0xe169c58d6627e8d5u, second = 0x9b00dbd8bc57ac4cu;
  const Tensor x = generator.uniform({2}, 0, 1, f64);
  EXPECT_EQ(x.item(0), static_cast<double>(first >> 11) * 0x1p-53);
  EXPECT_EQ(x.item(1), static_cast<double>(second >> 11) * 0x1p-53);
}

TEST(Random, SameSeedSameNumbers) {
  Generator a(7), b(7), c(8);
  const auto from_a = a.normal({100}).to_vector<float>();
  EXPECT_EQ(from_a, b.normal({100}).to_vector<float>());
  EXPECT_NE(from_a, c.normal({100}).to_vector<float>());
  EXPECT_NE(from_a, a.normal({100}).to_vector<float>());
}

// Many are made by several threads, of the draws that one thread would have made them of.
TEST(Random, ThreadsMakeTheNumbersOfOne) {
  for (const std::int64_t count : {(1 << 19) + 6, (1 << 19) + 7}) {
    Generator many(9), few(9);
    const Tensor at_once = many.normal({count}, 1, 2);
    std::vector<Tensor> parts;
    for (std::int64_t rest = count; rest > 0; rest -= parts.back().size())
      parts.push_back(few.normal({std::min<std::int64_t>(rest, 1 << 14)}, 1, 2));
    EXPECT_TRUE(all(at_once == concatenate(parts)).item<bool>());
    EXPECT_TRUE(all(many.normal({40}) == few.normal({40})).item<bool>());
  }
  // After one number of a pair of draws all that follow are of other pairs.
  Generator many(9), few(9);
  many.uniform({1}), few.uniform({1});
  const Tensor at_once = many.normal({1 << 19});
  EXPECT_TRUE(all(at_once(slice(0, 40)) == few.normal({40})).item<bool>());
}

// Means of n numbers of deviation s lie within 6 s / sqrt(n) but for one run in 10^9.
void expect_mean(const Tensor& x, double mean, double deviation) {
  double sum = 0;
  for (const double value : x.to_vector<double>()) sum += value;
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(sum / n, mean, 6 * deviation / std::sqrt(n));
}

TEST(Random, Moments) {
  Generator& generator = check::random();
  const Tensor uniform = generator.uniform({200, 500}, -2, 6, f64);
  expect_mean(uniform, 2, 8 / std::sqrt(12));
  expect_mean(square(uniform - 2), 64.0 / 12, std::sqrt(64.0 * 64 / 180));
  EXPECT_GE(min(uniform).item(), -2);
  EXPECT_LT(max(uniform).item(), 6);
  const Tensor normal = generator.normal({200, 500}, 3, 2, f64);
  expect_mean(normal, 3, 2);
  expect_mean(square((normal - 3) / 2), 1, std::sqrt(2));
  const Tensor fourth = square(square((normal - 3) / 2));
  expect_mean(fourth, 3,
              std::sqrt(96));  // the fourth moment of a normal variable; var(z^4) = 105 - 9
}

TEST(Random, Integers) {
  Generator& generator = check::random();
  const Tensor x = generator.randint(-3, 4, {70000});
  EXPECT_EQ(x.dtype(), i64);
  EXPECT_EQ(min(x).item(), -3);
  EXPECT_EQ(max(x).item(), 3);
  expect_mean(x, 0, 2);
  for (int value = -3; value < 4; ++value) expect_mean(x == value, 1.0 / 7, std::sqrt(6.0 / 49));
  EXPECT_EQ(generator.randint(5, 6, {3}, u8).to_vector<int>(), (std::vector<int>{5, 5, 5}));
  const std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                     high = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(generator.randint(low, high, {1}).item<std::int64_t>(),
            generator.randint(low, high, {1}).item<std::int64_t>());
  EXPECT_EQ(error_of([&] { generator.randint(2, 2, {1}); }),
            "randint: got low 2 and high 2, need low < high");
}

TEST(Random, IntegersFitTheirType) {
  Generator generator(1);
  EXPECT_EQ(generator.randint(-128, 128, {3}, i8).dtype(), i8);
  EXPECT_EQ(generator.randint(0, 2, {3}, boolean).dtype(), boolean);
  EXPECT_EQ(error_of([&] { generator.randint(0, 257, {1}, u8); }),
            "randint: the numbers from 0 to 256 do not all fit into u8: name a wider type");
  EXPECT_EQ(error_of([&] { generator.randint(-1, 2, {1}, u8); }),
            "randint: the numbers from -1 to 1 do not all fit into u8: name a wider type");
}

// Of 16-bit types one number in 512 (bf16) to 4096 (f16) would be rounded up to the end, and
// between neighbours of f32 and f64 half of them.
TEST(Random, UniformNeverReachesItsEnd) {
  Generator generator(2);
  constexpr std::pair<double, double> kIntervals[] = {{0, 1}, {-1, 0}, {-3, -2}, {0, 0.7}};
  for (const auto& [low, high] : kIntervals)
    for (const DType dtype : {f16, bf16, f32}) {
      const Tensor x = generator.uniform({100000}, low, high, dtype).astype(f64);
      EXPECT_LT(max(x).item(), high) << dtype;
      EXPECT_GE(min(x).item(), low) << dtype;
    }
  const float after = std::nextafter(1.f, 2.f);
  EXPECT_TRUE(all(generator.uniform({100}, 1, after, f32) == 1).item<bool>());
  EXPECT_TRUE(all(generator.uniform({100}, 1, std::nextafter(1, 2), f64) == 1).item<bool>());
  EXPECT_TRUE(all(generator.uniform({100}, 1, 1) == 1).item<bool>());
}

TEST(Random, EveryFloatingType) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = Generator(3).uniform({1000}, 0, 1, dtype);
    EXPECT_EQ(x.dtype(), dtype);
    expect_mean(x, 0.5, 0.3);
  }
}

}  // namespace
}  // namespace tensor

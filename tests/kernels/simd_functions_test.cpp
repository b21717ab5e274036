// The vector functions and conversions of every instruction set this processor has, against double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <random>
#include <vector>

#include "src/kernels/host/simd/table.h"
#include "src/ops/op.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tests/seed.h"

namespace tn = tensor;
using namespace tensor::simd;
using tensor::Op;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const Table*> all_tables() {
  int count;
  const Table* const* first = tables(&count);
  return {first, first + count};
}

std::vector<float> run(const Table& table, Op op, const std::vector<float>& a,
                       const std::vector<float>& b = {}, Storage type = Storage::f32) {
  std::vector<float> to(a.size(), kNan);
  const Slot slots[] = {{to.data(), Extent::element},
                        {const_cast<float*>(a.data()), Extent::element},
                        {const_cast<float*>(b.data()), Extent::element}};
  Instruction instruction{op, 0, 1};
  if (!b.empty()) instruction.b = 2;
  instruction.type = type;
  instruction.reference = tn::info(op).elementwise.floats;
  table.execute(&instruction, 1, slots, 1, static_cast<std::int64_t>(a.size()));
  return to;
}

// Every 9973rd float of all of them, dense ones in [-20, 20], and the special ones.
const std::vector<float>& inputs() {
  static const std::vector<float> all = [] {
    std::vector<float> x = {0,      -0.0f,  kInfinity, -kInfinity, kNan,    1e-45f,         -1e-45f,
                            88.7f,  88.73f, -87.3f,    -87.4f,     -103.9f, -104.1f,        3.4e38f,
                            0.625f, 1,      -1,        4,          -4,      1.17549435e-38f};
    const auto start = static_cast<std::uint32_t>(tn::check::seed() % 9973);
    for (std::uint64_t bits = start; bits <= 0xffffffffu; bits += 9973)
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    std::mt19937 random(start);
    for (int i = 0; i < 200000; ++i)
      x.push_back(std::uniform_real_distribution<float>(-20, 20)(random));
    return x;
  }();
  return all;
}

// The distance in units in the last place of the exact result; subnormal results by the smallest
// subnormal.
double ulps(float got, double exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kInfinity;
  const float rounded = static_cast<float>(exact);
  if (got == rounded) return 0;
  if (std::isinf(got) || std::isinf(rounded)) return kInfinity;
  const int exponent = std::max(std::ilogb(static_cast<float>(exact)), -126);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

// In a process of its own, for the environment is read once.
TEST(SimdTablesDeathTest, OnlyKnownInstructionSetsAreTaken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto best_with = [](const char* most) {
    ::setenv("TENSOR_MAX_ISA", most, 1);
    try {
      std::cerr << "best: " << table().name << '\n';
    } catch (const tn::UserError& error) {
      std::cerr << error.what() << '\n';
    }
    std::exit(0);
  };
  const auto ends = ::testing::ExitedWithCode(0);
  EXPECT_EXIT(best_with("baseline"), ends, "best: baseline");
  EXPECT_EXIT(best_with(""), ends, "best: ");
  for (const char* wrong : {"avx3", "AVX2", "avx2 "})
    EXPECT_EXIT(best_with(wrong), ends,
                "TENSOR_MAX_ISA: got \"" + std::string(wrong) +
                    "\", need baseline, avx2, avx512 or avx512_bf16");
}

struct Function {
  Op op;
  double (*exact)(double);
  double most_ulps;
  double low, high;  // where it is promised
};

TEST(SimdFunctions, AreWithinTheirUlps) {
  const Function functions[] = {
      {Op::exp, std::exp, 2, -kInfinity, kInfinity},
      {Op::log, std::log, 4, -kInfinity, kInfinity},
      {Op::tanh, std::tanh, 4, -kInfinity, kInfinity},
      {Op::erf, std::erf, 4, -kInfinity, kInfinity},
      {Op::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 4, -kInfinity, kInfinity},
      {Op::sqrt, std::sqrt, 0.5, -kInfinity, kInfinity},
      {Op::expm1, std::expm1, 2, -kInfinity, kInfinity},
      {Op::log1p, std::log1p, 2, -kInfinity, kInfinity},
      {Op::floor, std::floor, 0, -kInfinity, kInfinity},
      {Op::ceil, std::ceil, 0, -kInfinity, kInfinity},
      {Op::round, std::nearbyint, 0, -kInfinity, kInfinity},
  };
  for (const Table* table : all_tables())
    for (const Function& f : functions) {
      const std::vector<float> got = run(*table, f.op, inputs());
      double worst = 0;
      float at = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = ulps(got[i], f.exact(static_cast<double>(inputs()[i])));
        if (error > worst) worst = error, at = inputs()[i];
      }
      EXPECT_LE(worst, f.most_ulps) << table->name << " " << tn::info(f.op).name << " at " << at;
    }
}

// The angle is reduced by pi / 2 in 55 bits, so near a zero the error is absolute.
TEST(SimdFunctions, SineAndCosine) {
  for (const Table* table : all_tables())
    for (const Op op : {Op::sin, Op::cos}) {
      const std::vector<float> got = run(*table, op, inputs());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double x = static_cast<double>(inputs()[i]);
        const double exact = op == Op::sin ? std::sin(x) : std::cos(x);
        if (std::isnan(exact)) {
          ASSERT_TRUE(std::isnan(got[i]));
          continue;
        }
        ASSERT_NEAR(static_cast<double>(got[i]), exact, 2e-7 * std::abs(exact) + 1e-10)
            << table->name << " at " << x;
      }
    }
}

// The products before and after the function round two or three times more.
TEST(SimdFunctions, Activations) {
  const auto gelu_tanh = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  for (const Table* table : all_tables()) {
    const auto check = [&](Op op, auto exact) {
      const std::vector<float> got = run(*table, op, inputs());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double x = static_cast<double>(inputs()[i]);
        if (!(std::abs(x) < 1e12)) continue;
        ASSERT_NEAR(static_cast<double>(got[i]), exact(x), 6e-7 * std::abs(x) + 1e-38)
            << table->name << " " << tn::info(op).name << " at " << x;
      }
    };
    check(Op::gelu, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2)); });
    check(Op::gelu_tanh, gelu_tanh);
    check(Op::silu, [](double x) { return x / (1 + std::exp(-x)); });
    check(Op::hardswish, [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; });
  }
}

TEST(SimdFunctions, SignedZerosAndNanInExtremes) {
  const std::vector<float> a = {0.0f, -0.0f, kNan, 1, kInfinity, -1},
                           b = {-0.0f, 0.0f, 1, kNan, 3, 2};
  for (const Table* table : all_tables()) {
    const std::vector<float> high = run(*table, Op::maximum, a, b),
                             low = run(*table, Op::minimum, a, b);
    EXPECT_FALSE(std::signbit(high[0]));
    EXPECT_TRUE(std::signbit(high[1]));
    EXPECT_TRUE(std::isnan(high[2]) && std::isnan(high[3]) && std::isnan(low[2]) &&
                std::isnan(low[3]));
    EXPECT_EQ(high[4], kInfinity);
    EXPECT_EQ(low[4], 3);
    EXPECT_EQ(low[5], -1);
    EXPECT_TRUE(std::signbit(run(*table, Op::sin, {-0.0f})[0]));
    EXPECT_TRUE(std::signbit(run(*table, Op::tanh, {-0.0f})[0]));
    EXPECT_TRUE(std::signbit(run(*table, Op::ceil, {-0.5f})[0]));
  }
}

// Each bit pattern of a 16-bit type survives a load and a store; floats round as the library
// rounds.
TEST(SimdFunctions, ShortFloats) {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  for (const Table* table : all_tables())
    for (const bool is_half : {false, true}) {
      const int type = static_cast<int>(is_half ? Storage::f16 : Storage::bf16);
      for (const std::int64_t stride : {1, 3}) {
        const std::int64_t count = 65536 / stride;
        std::vector<float> wide(static_cast<std::size_t>(count));
        table->load[type](wide.data(), patterns.data(), stride, count);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto bits = static_cast<std::uint16_t>(i * stride);
          tn::Float16 half;
          tn::BFloat16 brain;
          half.bits = brain.bits = bits;
          const float expected = is_half ? float(half) : float(brain);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[static_cast<std::size_t>(i)]),
                    std::bit_cast<std::uint32_t>(expected))
              << table->name << ' ' << bits;
        }
      }
      std::vector<std::uint16_t> narrow(inputs().size());
      table->store[type](narrow.data(), 1, inputs().data(),
                         static_cast<std::int64_t>(narrow.size()));
      const std::vector<float> rounded =
          run(*table, Op::astype, inputs(), {}, is_half ? Storage::f16 : Storage::bf16);
      for (std::size_t i = 0; i < narrow.size(); ++i) {
        const float x = inputs()[i];
        const std::uint16_t expected = is_half ? tn::Float16(x).bits : tn::BFloat16(x).bits;
        if (std::isnan(x)) {
          ASSERT_TRUE(std::isnan(rounded[i]));
          continue;
        }
        ASSERT_EQ(narrow[i], expected) << table->name << " at " << x;
        ASSERT_EQ(rounded[i], is_half ? float(tn::Float16(x)) : float(tn::BFloat16(x)));
      }
    }
}

template <class T>
void check_integers(const Table& table, Storage type) {
  const std::vector<float> x = {0,      -0.9f,   1.9f,   -1.9f, 127.5f,   128,   -128.9f,
                                255.9f, 256,     -1,     3e4f,  4e4f,     -4e4f, 3e9f,
                                -3e9f,  9.3e18f, -1e30f, kNan,  kInfinity};
  std::vector<T> got(x.size());
  table.store[static_cast<int>(type)](got.data(), 1, x.data(), static_cast<std::int64_t>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    T expected = 0;
    if (x[i] >= -static_cast<float>(std::numeric_limits<T>::min()) && std::is_signed_v<T>)
      expected = std::numeric_limits<T>::max();
    else if (!std::is_signed_v<T> && x[i] >= 256)
      expected = std::numeric_limits<T>::max();
    else if (x[i] <= static_cast<float>(std::numeric_limits<T>::min()))
      expected = std::numeric_limits<T>::min();
    else if (x[i] == x[i])
      expected = static_cast<T>(x[i]);
    EXPECT_EQ(got[i], expected) << table.name << " at " << x[i];
  }
  std::vector<float> back(got.size());
  table.load[static_cast<int>(type)](back.data(), got.data(), 1,
                                     static_cast<std::int64_t>(got.size()));
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(back[i], static_cast<float>(got[i]));
}

TEST(SimdFunctions, IntegersTruncateAndSaturate) {
  for (const Table* table : all_tables()) {
    check_integers<std::uint8_t>(*table, Storage::u8);
    check_integers<std::int8_t>(*table, Storage::i8);
    check_integers<std::int16_t>(*table, Storage::i16);
    check_integers<std::int32_t>(*table, Storage::i32);
    check_integers<std::int64_t>(*table, Storage::i64);
  }
}

}  // namespace

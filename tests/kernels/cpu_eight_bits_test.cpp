// Products in eight bits: the reference against an independent definition, and kernels against the
// reference, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/kernels/host/simd/table.h"
#include "src/ops/eight_bits.h"
#include "src/ops/op.h"
#include "tests/error_of.h"
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

Tensor random_bytes(const Shape& shape) {
  return tn::floor(tn::Generator(random_engine()()).uniform(shape, -128, 128)).astype(tn::i8);
}

// Weights [depth, columns] as they lie, with anything around them.
Tensor strips_of(const Tensor& weights) {
  const std::int64_t depth = weights.shape(0), columns = weights.shape(1);
  const Shape shape{(columns + 15) / 16, (depth + 3) / 4, 16, 4};
  std::vector<int> bytes = random_bytes(shape).to_vector<int>();
  const std::vector<int> from = weights.to_vector<int>();
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t n = 0; n < columns; ++n)
      bytes[static_cast<std::size_t>(((n / 16 * shape[1] + k / 4) * 16 + n % 16) * 4 + k % 4)] =
          from[static_cast<std::size_t>(k * columns + n)];
  return tn::array(bytes).astype(tn::i8).reshape(shape);
}

Tensor product(const Tensor& x, const Tensor& strips, const Tensor& scales) {
  return tn::apply_op(tn::Op::quantized_matmul, {x, strips, scales});
}

// Rows of all kinds: of zeros, of huge and tiny numbers, of one number that exceeds the others by
// far, of ties between two integers, of infinities and NaNs.
Tensor awkward_rows(std::int64_t rows, std::int64_t depth) {
  std::vector<float> all;
  std::normal_distribution<float> normal;
  for (std::int64_t row = 0; row < rows; ++row) {
    const int kind = pick(12);
    for (std::int64_t k = 0; k < depth; ++k) {
      float x = normal(random_engine());
      if (kind == 0) x = pick(2) ? 0.0f : -0.0f;
      if (kind == 1) x *= 0x1p124f;
      if (kind == 2) x *= 0x1p-140f;
      if (kind == 3 && k == depth / 2) x *= 1000;
      if (kind == 4) x = static_cast<float>(k == 0 ? 254 : pick(509) - 254);  // by 127 / 254
      if (kind == 5 && pick(static_cast<int>(depth)) == 0) x = pick(2) ? INFINITY : -INFINITY;
      if (kind == 6 && pick(static_cast<int>(depth)) == 0) x = NAN;
      all.push_back(x);
    }
  }
  return tn::array(all).reshape({rows, depth});
}

std::vector<std::uint32_t> bits_of(const Tensor& x) {
  std::vector<std::uint32_t> result;
  for (const float number : x.to_vector<float>()) {
    std::uint32_t bits = 0x7fc00000;  // of all NaNs
    if (!std::isnan(number)) std::memcpy(&bits, &number, sizeof bits);
    result.push_back(bits);
  }
  return result;
}

// The definition in src/ops/eight_bits.h, in long double with a rounding to float32 wherever there
// is one.
float defined(const std::vector<float>& row, const std::vector<int>& column, float scale) {
  float largest = 0x1p-100f;
  for (const float x : row) {
    if (!std::isfinite(x)) return NAN;
    largest = std::max(largest, std::abs(x));
  }
  const auto inverse = static_cast<float>(127.0L / largest),
             step = static_cast<float>(largest / 127.0L);
  long long sum = 0;
  for (std::size_t k = 0; k < row.size(); ++k) {
    const long double x = static_cast<float>(static_cast<long double>(row[k]) * inverse);
    long double whole = std::floor(x);
    if (x - whole > 0.5L || (x - whole == 0.5L && std::fmod(whole, 2.0L) != 0)) whole += 1;
    sum += static_cast<long long>(whole) * column[k];
  }
  const auto both = static_cast<float>(static_cast<long double>(step) * scale);
  return static_cast<float>(static_cast<long double>(static_cast<float>(sum)) * both);
}

TEST(EightBits, ReferenceIsAsDefined) {
  for (int round = 0; round < 200; ++round) {
    const std::int64_t m = 1 + pick(4), k = 1 + pick(70), n = 1 + pick(5);
    const Tensor x = awkward_rows(m, k), w = random_bytes({k, n});
    const Tensor scales = tn::abs(normal({n})) * 0.01;
    const auto numbers = x.to_vector<float>(), by = scales.to_vector<float>();
    const auto bytes = w.to_vector<int>();
    std::vector<float> need;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        std::vector<int> column;
        for (std::int64_t d = 0; d < k; ++d)
          column.push_back(bytes[static_cast<std::size_t>(d * n + j)]);
        need.push_back(defined({numbers.begin() + i * k, numbers.begin() + (i + 1) * k}, column,
                               by[static_cast<std::size_t>(j)]));
      }
    ASSERT_EQ(bits_of(product(x, strips_of(w), scales)), bits_of(tn::array(need)))
        << "round " << round;
  }
}

TEST(EightBits, RowsOfBytesMayHaveScales) {
  const Tensor rows = random_bytes({9, 50}), weights = random_bytes({50, 20}),
               scales = tn::Generator(1).normal({20}), by = tn::Generator(2).normal({9, 1});
  const Tensor sums = tn::matmul(rows.astype(tn::f32), weights.astype(tn::f32));  // below 2^24
  const Tensor strips = strips_of(weights);
  const Tensor got = tn::apply_op(tn::Op::quantized_matmul, {rows, strips, scales, by});
  EXPECT_EQ(bits_of(got), bits_of(sums * (by * scales)));
  EXPECT_EQ(bits_of(product(rows, strips, scales)), bits_of(sums * scales));
}

TEST(EightBits, Refusals) {
  const auto error = [](const Tensor& x, const Tensor& w, const Tensor& s) {
    return tn::check::error_of([&] { product(x, w, s); });
  };
  const Tensor x = tn::zeros({2, 3}), w = tn::zeros({1, 1, 16, 4}, tn::i8), s = tn::zeros({4});
  EXPECT_EQ(error(x.astype(tn::f64), w, s),
            "quantized_matmul: got the rows f64(2, 3), need f32, bf16, f16 or i8 and at least 2 "
            "axes");
  EXPECT_EQ(error(x, w, s.astype(tn::f16)),
            "quantized_matmul: got the scales f16(4,), need f32(columns)");
  EXPECT_EQ(error(x, w.astype(tn::u8), s),
            "quantized_matmul: got the weights u8(1, 1, 16, 4) for the rows f32(2, 3) and 4 "
            "columns, need i8(1, 1, 16, 4)");
  EXPECT_EQ(error(x, w, tn::zeros({17})),
            "quantized_matmul: got the weights i8(1, 1, 16, 4) for the rows f32(2, 3) and 17 "
            "columns, need i8(2, 1, 16, 4)");
  const auto of_rows = [&](const Tensor& rows, const Tensor& scales) {
    return tn::check::error_of([&] {
      tn::apply_op(tn::Op::quantized_matmul, {rows, w, s, scales});
    });
  };
  EXPECT_EQ(of_rows(x, tn::ones({2, 1})),
            "quantized_matmul: got the scales f32(2, 1) of the rows f32(2, 3), need rows of i8 and "
            "f32(2, 1), or no scales of rows");
  EXPECT_EQ(of_rows(x.astype(tn::i8), tn::ones({2})),
            "quantized_matmul: got the scales f32(2,) of the rows i8(2, 3), need rows of i8 and "
            "f32(2, 1), or no scales of rows");
  EXPECT_EQ(error(tn::zeros({1, 131072}), w, s),
            "quantized_matmul: got rows of 131072 numbers, need at most 131071, whose products add "
            "up in 32 bits");
  const Tensor most = tn::full({1, 131071}, 3.0).astype(tn::f32);
  const Tensor least = tn::full({1, 131072 / 4, 16, 4}, -128).astype(tn::i8);
  EXPECT_EQ(product(most, least, tn::ones({1})).item<float>(),
            -131071 * 127.0f * 128 * (3.0f / 127));
}

std::int64_t among(std::initializer_list<std::int64_t> values) {
  return values.begin()[pick(static_cast<int>(values.size()))];
}

// With a bias each operation is rounded as the operators by themselves round it.
void check_exact(std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  const bool has_bias = pick(2), in_batch = pick(3) == 0;
  const tn::DType dtype = std::vector{tn::f32, tn::f32, tn::bf16, tn::f16, tn::i8}[pick(5)];
  const bool is_symmetric = dtype == tn::i8 && pick(2);
  const Tensor weights = strips_of(random_bytes({depth, columns}));
  const Tensor scales = tn::abs(normal({columns})) * (pick(9) == 0 ? 1e30 : 0.01),
               bias = normal({columns});
  Tensor x = awkward_rows(rows, depth).astype(dtype);
  if (in_batch) x = tn::stack({x, awkward_rows(rows, depth).astype(dtype)}, 0);
  if (is_symmetric) x = tn::maximum(x, -127).astype(tn::i8);
  const tn::Attrs attrs = is_symmetric ? tn::Attrs{{tn::kSymmetric, true}} : tn::Attrs{};
  const auto f = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::apply_op(tn::Op::quantized_matmul, {in[0], weights, scales}, attrs);
    return {has_bias ? y + bias : y};
  };
  const GroupRun run = run_group("eight_bits", f, {x}, pick(3) ? &random_engine() : nullptr);
  ASSERT_EQ(bits_of(run.got[0]), bits_of(run.expected[0]))
      << run.kernel << ": " << rows << " rows, depth " << depth << ", columns " << columns;
}

TEST(EightBits, KernelsGiveTheSameBits) {
  for (const std::int64_t rows : {1, 2, 5, 7, 15, 16, 17, 31, 33, 63, 65, 197, 400})
    for (int round = 0; round < 30 && !HasFailure(); ++round)
      check_exact(rows, among({1, 2, 3, 4, 5, 31, 33, 63, 64, 65, 100, 768}),
                  among({2, 3, 15, 16, 17, 33, 100, 129, 300}));
  check_exact(700, 3072, 200);
  check_exact(65, 4100, 130);
  check_exact(2000, 64, 64);
}

// Images of all kinds of numbers, and filters by which to convolve them.
struct Convolved {
  tn::Pair kernel{1 + pick(3), 1 + pick(3)}, stride{1 + pick(2), 1 + pick(2)},
      padding{pick(2), pick(2)}, dilation{1 + pick(2), 1 + pick(2)};
  std::int64_t images = 1 + pick(2), channels = among({1, 3, 4, 16, 37}),
               columns = among({2, 16, 33});
  tn::Shape size{5 + pick(12), 5 + pick(12)};
  Tensor image = awkward_rows(images * size[0] * size[1], channels)
                     .reshape({images, size[0], size[1], channels})
                     .transpose({0, 3, 1, 2})
                     .copy();
  Tensor weights = random_bytes({channels * kernel.h * kernel.w, columns});
  Tensor strips = strips_of(weights), scales = tn::abs(normal({columns})) * 0.01;

  Tensor operator()(const Tensor& x) const {
    const auto both = [](const tn::Pair& p) { return tn::Ints{p.h, p.w}; };
    return tn::apply_op(tn::Op::quantized_conv2d, {x, strips, scales},
                        {{"kernel", both(kernel)},
                         {"stride", both(stride)},
                         {"padding", both(padding)},
                         {"dilation", both(dilation)}});
  }
};

TEST(EightBits, ConvolutionsAreProductsOfWhatFiltersLieOn) {
  for (int round = 0; round < 60; ++round) {
    Convolved c;
    if (pick(3) == 0) c.image = random_bytes(c.image.shape());
    const Tensor got = c(c.image);
    const std::int64_t taps = c.kernel.h * c.kernel.w, places = got.shape(2) * got.shape(3);
    const Tensor rows =
        tn::unfold(c.image.astype(tn::f32), c.kernel, c.dilation, c.padding, c.stride)
            .reshape({c.images, c.channels, taps, places})
            .transpose({0, 3, 2, 1})
            .reshape({c.images * places, taps * c.channels})
            .astype(c.image.dtype());
    const Tensor need = product(rows, c.strips, c.scales)
                            .reshape({c.images, places, c.columns})
                            .transpose({0, 2, 1});
    ASSERT_EQ(bits_of(got), bits_of(need)) << "round " << round;
  }
}

TEST(EightBits, KernelsOfConvolutionsGiveTheSameBits) {
  for (int round = 0; round < 120; ++round) {
    const Convolved c;
    const bool has_bias = pick(2);
    const Tensor bias = normal({c.columns, 1, 1});
    const tn::DType dtype =
        std::vector{tn::f32, tn::f32, tn::bf16, tn::f16, tn::i8, tn::i8}[pick(6)];
    const auto f = [&](const Tensors& in) -> Tensors {
      return {has_bias ? c(in[0]) + bias : c(in[0])};
    };
    const Tensor image = dtype == tn::i8 ? random_bytes(c.image.shape()) : c.image.astype(dtype);
    const GroupRun run = run_group("eight_bits", f, {image}, pick(3) ? &random_engine() : nullptr);
    ASSERT_EQ(bits_of(run.got[0]), bits_of(run.expected[0]))
        << run.kernel << ": round " << round << ", image " << c.image.shape();
  }
}

// Elementwise operators follow in float32, as behind any product.
TEST(EightBits, Epilogues) {
  for (int round = 0; round < 60; ++round) {
    const std::int64_t m = among({1, 7, 50, 197}), k = among({3, 64, 200}),
                       n = among({2, 17, 64, 130});
    const Tensor weights = strips_of(random_bytes({k, n})), scales = tn::abs(normal({n})) * 0.001;
    const Tensor bias = normal({n});
    const int kind = pick(4);
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor y = product(in[0], weights, scales) + bias;
      if (kind == 0) return {tn::gelu(y)};
      if (kind == 1) return {y + in[1]};
      if (kind == 2) return {tn::relu(y * in[1])};
      return {(y * tn::sigmoid(y)).astype(tn::bf16)};
    };
    Tensors inputs{normal({m, k})};
    if (kind == 1 || kind == 2) inputs.push_back(normal({m, n}));
    const GroupRun run = run_group("eight_bits", f, inputs, pick(3) ? &random_engine() : nullptr);
    expect_close(run, 0x1p-20, 1);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// What add_rounding makes of numbers (src/trace/passes/round_rows.h).
Tensor rounded(const Tensor& x, float inverse) {
  return tn::round(tn::maximum(x * inverse, -127)).astype(tn::i8);
}

// By one scale, beside the result, in any type, or in its place; some numbers exceed the scale.
TEST(EightBits, KernelsRoundWhatTheyMake) {
  for (int round = 0; round < 120 && !HasFailure(); ++round) {
    const std::int64_t m = among({1, 7, 50, 197}), k = among({3, 64, 200}),
                       n = among({2, 17, 64, 130});
    const Tensor weights = strips_of(random_bytes({k, n})), scales = tn::abs(normal({n})) * 0.001;
    const Tensor bias = normal({n});
    const int kind = pick(4), leaves = pick(3);
    const bool has_bias = pick(2);
    const auto f = [&](const Tensors& in) -> Tensors {
      Tensor y = product(in[0], weights, scales);
      if (has_bias) y = y + bias;
      if (kind == 1) y = tn::relu(y);
      if (kind == 2) y = tn::relu(y + in[1]);
      if (kind == 3) y = tn::maximum(y, 0.25) * in[1];
      const Tensor bytes = rounded(y, 90);
      if (leaves == 1) return {y, bytes};
      if (leaves == 2) return {y.astype(tn::bf16), bytes};
      return {bytes};
    };
    Tensors inputs{awkward_rows(m, k)};
    if (kind > 1) inputs.push_back(normal({m, n}));
    const GroupRun run = run_group("eight_bits", f, inputs, pick(3) ? &random_engine() : nullptr);
    expect_close(run, 0);  // each operation is rounded as by itself
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(EightBits, KernelsRoundImages) {
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const Convolved c;
    const bool leaves = pick(2);
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor y = tn::relu(c(in[0]) + in[1]), bytes = rounded(y, 40);
      return leaves ? Tensors{y, bytes} : Tensors{bytes};
    };
    const Tensor image = random_bytes(c.image.shape());
    const GroupRun run = run_group("eight_bits", f, {image, normal(c(image).shape())},
                                   pick(3) ? &random_engine() : nullptr);
    expect_close(run, 0);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// Infinities, NaNs, ties, and whatever exceeds the scale, by vectors of any length.
TEST(EightBits, RoundingByOneScaleIsAsOperatorsRound) {
  int count;
  const auto* const* tables = tn::simd::tables(&count);
  for (int t = 0; t < count; ++t)
    for (int round = 0; round < 100; ++round) {
      const std::int64_t columns = 1 + pick(200);
      const Tensor x = awkward_rows(2, columns);
      const float inverse = pick(2) ? 0.5F : 127 / 3.0F;
      std::vector<std::int8_t> got(static_cast<std::size_t>(2 * columns));
      const std::vector<float> sums = x.to_vector<float>();
      tn::simd::Finish finish{.sums = sums.data(), .sums_row = columns};
      finish.inverse = inverse, finish.to = got.data(), finish.to_row = columns;
      finish.rows = 2, finish.columns = columns;
      tables[t]->finish[static_cast<int>(tn::simd::Storage::i8)](finish);
      ASSERT_EQ(got, rounded(x, inverse).to_vector<std::int8_t>()) << tables[t]->name;
      std::int32_t sum = 0;
      for (const int byte : got) sum += byte;
      ASSERT_EQ(tables[t]->sum_bytes(got.data(), 2 * columns), sum);
      const Tensor wild = x * 100;
      tables[t]->store[static_cast<int>(tn::simd::Storage::i8)](
          got.data(), 1, wild.to_vector<float>().data(), 2 * columns);
      ASSERT_EQ(got, wild.astype(tn::i8).to_vector<std::int8_t>()) << tables[t]->name;
    }
}

// Every kernel of every instruction set that this machine has, and a row's numbers in eight bits.
TEST(EightBits, AllInstructionSets) {
  int count;
  const auto* const* tables = tn::simd::tables(&count);
  for (int t = 0; t < count; ++t)
    for (int round = 0; round < 100; ++round) {
      const std::int64_t depth = 1 + pick(100);
      const Tensor x = awkward_rows(1, depth);
      const auto numbers = x.to_vector<float>();
      std::vector<std::int8_t> need(static_cast<std::size_t>(depth)), got = need;
      std::int32_t sum = 0, need_sum = 0;
      const float scale = tn::quantize(numbers.data(), depth, need.data());
      const float got_scale = tables[t]->quantize(got.data(), numbers.data(), depth, &sum);
      for (const int byte : need) need_sum += byte;
      ASSERT_EQ(got, need) << tables[t]->name;
      ASSERT_EQ(sum, need_sum);
      ASSERT_TRUE(scale == got_scale || (std::isnan(scale) && std::isnan(got_scale)));
    }
}

TEST(EightBits, OthersDecline) {
  const Tensor w = random_bytes({3, 16, 16, 4}), s = tn::ones({48});
  const auto f = [&](const Tensors& in) -> Tensors { return {product(in[0], w, s)}; };
  EXPECT_TRUE(accepts("eight_bits", f, {normal({33, 64})}));
  EXPECT_FALSE(accepts("product", f, {normal({33, 64})}));
  EXPECT_FALSE(accepts("tiles", f, {normal({33, 64})}));
  const auto read = [&](const Tensors& in) -> Tensors { return {product(in[0], w, in[1])}; };
  EXPECT_FALSE(accepts("eight_bits", read, {normal({33, 64}), s}));
  const auto plain = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], in[1])}; };
  EXPECT_FALSE(accepts("eight_bits", plain, {normal({33, 64}), normal({64, 48})}));
}

}  // namespace

// The gemm family against the reference, on layouts that have misled oneDNN.
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

// bf16 where the processor multiplies it; elsewhere the family declines it.
tn::DType narrow_type() { return tn::cpu::this_machine().has_bf16 ? tn::bf16 : tn::f32; }

// Products of one row or one column each, whose axes of extent 1 lie anywhere: the address of an
// epilogue's operand is computed from the strides of the result.
TEST(Gemm, RowsOfOneElementWithAnEpilogue) {
  tn::Generator random(random_engine()());
  for (int round = 0; round < 60; ++round) {
    const Shape batch{1 + pick(15), 1 + pick(17)};
    const std::int64_t rows = pick(2) ? 1 : 3, depth = pick(2) ? 1 : 4, columns = pick(2) ? 64 : 1;
    const tn::DType narrow = pick(2) ? narrow_type() : tn::f32;
    const Tensors inputs{random.normal({batch[1], batch[0], rows, depth}).astype(narrow),
                         random.normal({1, 1, depth, columns}).astype(narrow),
                         random.normal({columns})};
    // Whole sums in float32, against the reference's rounded to the narrow type once, which are
    // hardly larger than 32.
    const double bound = narrow == tn::bf16 ? 0x1p-8 : 1e-5;
    const auto f = [](const Tensors& in) -> Tensors {
      const Tensor product = tn::matmul(in[0].transpose({1, 0, 2, 3}), in[1]);
      return {product.astype(tn::f32) + in[2]};
    };
    expect_close(run_group("gemm", f, inputs, pick(3) ? &random_engine() : nullptr), bound, 32);
    if (HasFailure()) FAIL() << "round " << round << ' ' << batch << rows << ' ' << columns;
  }
}

// Projections with a residual: where the result is stored like it, it begins as its copy.
TEST(Gemm, AddsToResiduals) {
  tn::Generator random(random_engine()());
  for (int round = 0; round < 40; ++round) {
    const std::int64_t batch = 1 + pick(3), rows = pick(4) ? 1 + pick(70) : 1;
    const std::int64_t depth = 16 * (1 + pick(20)), columns = pick(3) ? 16 * (1 + pick(9)) : 7;
    const tn::DType narrow = pick(3) ? tn::f32 : narrow_type(), stored = pick(4) ? tn::f32 : narrow;
    const Tensor weight = random.normal({columns, depth}).astype(narrow);
    const Tensor bias = random.normal({columns});
    const Tensors inputs{random.normal({batch, rows, depth}).astype(narrow),
                         random.normal({batch, rows, columns}).astype(stored)};
    const bool has_bias = stored == tn::f32 && pick(2), is_positive = pick(2);
    const auto f = [=](const Tensors& in) -> Tensors {
      Tensor sum = tn::matmul(in[0], weight.swapaxes(0, 1)).astype(stored);
      if (has_bias) sum = sum + bias;
      sum = in[1] + sum;
      return {is_positive ? tn::relu(sum) : sum};
    };
    // `depth` products of numbers around 1, added in another order than the reference's; in bf16 it
    // rounds its sum once more.
    const double size = std::sqrt(static_cast<double>(depth));
    const double bound = narrow == tn::bf16 ? 0x1p-8 : 0x1p-24 * size;
    expect_close(run_group("gemm", f, inputs, pick(3) ? &random_engine() : nullptr), bound,
                 8 * size);
    if (HasFailure()) FAIL() << "round " << round << ' ' << rows << ' ' << depth << ' ' << columns;
  }
}

// Found by a changed plan file: oneDNN divides by 0 where 32 bits hold no number of rows.
TEST(Gemm, DeclinesMoreRowsThan32BitsCount) {
  const auto f = [](const Tensors& in) -> Tensors { return {tn::matmul(in[0], tn::ones({6, 8}))}; };
  const auto rows = [](std::int64_t count) {
    return tn::broadcast_to(tn::ones({1, 6}), {count, 6});
  };
  EXPECT_TRUE(accepts("gemm", f, {rows(1 << 20)}));
  EXPECT_FALSE(accepts("gemm", f, {rows(std::int64_t{1} << 32)}));
}

// Found by random graphs: oneDNN has no such product, and says so when it is built.
TEST(Gemm, DeclinesResultsNarrowerThanTheFactors) {
  const auto rounded = [](const Tensors& in) -> Tensors {
    return {tn::matmul(in[0], in[1]).astype(tn::bf16)};
  };
  tn::Generator random(random_engine()());
  const Tensor a = random.normal({3, 4}), b = random.normal({4, 5});
  EXPECT_FALSE(accepts("gemm", rounded, {a, b}));
}

// oneDNN's results stay float32 until they are stored; a cast to anything but a floating type
// computes something.
TEST(Gemm, DeclinesCastsThatAreNoRoundings) {
  tn::Generator random(random_engine()());
  const Tensors inputs{random.normal({3, 4}), random.normal({4, 5})};
  for (const tn::DType to : {tn::boolean, tn::u8, tn::i32, tn::i64, tn::f64, tn::f16, tn::bf16}) {
    const auto f = [&](const Tensors& in) -> Tensors {
      return {tn::relu(tn::matmul(in[0], in[1])).astype(to).astype(tn::f32) + 1};
    };
    EXPECT_EQ(accepts("gemm", f, inputs), to == tn::f16 || to == tn::bf16) << to;
  }
}

// Its exp makes infinity of NaN, its maximum and minimum take the other operand, and it divides by
// multiplying.
TEST(Gemm, DeclinesWhatLosesNanOrOverflows) {
  tn::Generator random(random_engine()());
  const Tensors inputs{random.normal({3, 4}), random.normal({4, 5}), random.normal({3, 5})};
  const auto takes = [&](auto f) {
    return accepts(
        "gemm", [&](const Tensors& in) -> Tensors { return {f(tn::matmul(in[0], in[1]), in[2])}; },
        inputs);
  };
  EXPECT_FALSE(takes([](const Tensor& y, const Tensor&) { return tn::exp(y); }));
  EXPECT_FALSE(takes([](const Tensor& y, const Tensor& b) { return tn::maximum(y, b); }));
  EXPECT_FALSE(takes([](const Tensor& y, const Tensor& b) { return tn::minimum(b, y); }));
  EXPECT_FALSE(takes([](const Tensor& y, const Tensor&) { return y / 1e-39; }));
  EXPECT_FALSE(takes([](const Tensor& y, const Tensor&) { return y / 2e38; }));
  EXPECT_TRUE(takes([](const Tensor& y, const Tensor&) { return y / 3.0; }));
}

// All that it does take keeps NaN and infinities, but for relu (docs/differences.md).
TEST(Gemm, EpiloguesOfSpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = NAN;
  const Tensor x = tn::array({kNan, kInfinity, -kInfinity, -3.0f, 0.0f, 80.0f}).reshape({6, 1}),
               one = tn::ones({1, 16}), residual = tn::ones({6, 16});
  using F = Tensor (*)(const Tensor&);
  const F kFunctions[] = {tn::gelu, tn::gelu_tanh, tn::silu,   tn::sigmoid, tn::tanh,
                          tn::abs,  tn::sqrt,      tn::square, tn::negative};
  for (const F f : kFunctions)
    expect_close(
        run_group(
            "gemm",
            [&](const Tensors& in) -> Tensors { return {f(tn::matmul(in[0], in[1])) + in[2]}; },
            {x, one, residual}, nullptr),
        1e-5, 6400);
  const GroupRun run = run_group(
      "gemm", [](const Tensors& in) -> Tensors { return {tn::relu(tn::matmul(in[0], in[1]))}; },
      {x, one}, nullptr);
  const auto got = run.got[0](tn::all_of_axis, 0).to_vector<float>();
  EXPECT_TRUE(got[0] == 0 || std::isnan(got[0]));
  EXPECT_EQ(std::vector(got.begin() + 1, got.end()), (std::vector<float>{kInfinity, 0, 0, 0, 80}));
}

// An odd depth in bf16: no row sees the beginning of the next.
TEST(Gemm, NanStaysInItsRow) {
  for (const std::int64_t depth : {3, 16, 17}) {
    Tensor x = tn::ones({16, depth}, narrow_type());
    x(3, 0) = NAN;
    const Tensor weight = tn::ones({depth, 16}, narrow_type());
    const GroupRun run = run_group(
        "gemm", [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight)}; }, {x},
        nullptr);
    expect_close(run, 0, 1);  // sums of a few ones are exact
  }
}

// 1 / 0 and 1 / -0 are as different as numbers can be.
TEST(Gemm, ZerosKeepTheirSigns) {
  const Tensor weight = tn::ones({8, 16});
  const std::function<Tensor(const Tensor&)> signs[] = {[](const Tensor& y) { return -y; },
                                                        [](const Tensor& y) { return y * -2.0f; },
                                                        [](const Tensor& y) { return y / -4.0f; }};
  for (const auto& change : signs) {
    const GroupRun run = run_group(
        "gemm", [&](const Tensors& in) -> Tensors { return {change(tn::matmul(in[0], weight))}; },
        {tn::zeros({16, 8})}, nullptr);
    for (const float zero : run.got[0].to_vector<float>())
      ASSERT_TRUE(zero == 0 && std::signbit(zero)) << zero;
  }
}

}  // namespace

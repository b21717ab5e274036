// Products and convolutions on vectors and tiles against float64: awkward sizes, layouts,
// epilogues, and what they must leave alone.
#include <gtest/gtest.h>

#include <cmath>

#include "src/kernels/host/simd/table.h"
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

Tensor narrow(const Shape& shape, tn::DType dtype = tn::bf16) {
  return tn::Generator(random_engine()()).normal(shape).astype(dtype);
}
Tensor wide(const Shape& shape) { return tn::Generator(random_engine()()).normal(shape); }
// Small whole numbers, whose sums are exact in any order.
Tensor digits(const Shape& shape, tn::DType dtype) {
  return tn::floor(tn::Generator(random_engine()()).uniform(shape, -4, 5)).astype(dtype);
}

Tensors as_f64(const Tensors& in) {
  Tensors result;
  for (const Tensor& x : in) result.push_back(x.astype(tn::f64));
  return result;
}

// What multiplies, and the type of the factors and of most results.
struct Kind {
  const char* family;
  tn::DType dtype;
};

class Products : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam().family == std::string("tiles") && !tn::simd::has_tiles())
      GTEST_SKIP() << "this processor has no tile instructions for bf16 (AMX)";
  }
};

INSTANTIATE_TEST_SUITE_P(On, Products,
                         ::testing::Values(Kind{"product", tn::f32}, Kind{"product", tn::bf16},
                                           Kind{"product", tn::f16}, Kind{"tiles", tn::bf16}),
                         [](const auto& it) {
                           return it.param.family + ("_" + std::string(tn::name(it.param.dtype)));
                         });

// Half a unit in the last place of a number near 1, and a little for its neighbours.
double half_unit(tn::DType dtype) {
  return dtype == tn::bf16 ? 0x1.01p-8 : dtype == tn::f16 ? 0x1.01p-11 : 0x1p-21;
}

// `f(in, dtype)` calculates in `dtype` wherever the model would in float32. Sums of `depth` terms
// of about 1 are off by 2^-24 of each partial sum, which grow to sqrt(depth); a narrow result by
// half a unit in its last place more, which in f16 is at least 2^-25. The epilogue multiplies the
// error of the sums by up to `growth`. Whole numbers have no error but the last one.
template <class F>
void expect_right(const Kind& kind, const F& f, const Tensors& inputs, std::int64_t depth,
                  bool is_exact, double growth) {
  const bool is_plain = pick(3) == 0;
  const GroupRun run = run_group(
      kind.family, [&](const Tensors& in) -> Tensors { return {f(in, tn::f32)}; }, inputs,
      is_plain ? nullptr : &random_engine());
  ASSERT_EQ(run.got.size(), 1u);
  const Tensor need = f(as_f64(inputs), tn::f64);
  ASSERT_EQ(run.got[0].shape(), need.shape());
  const auto got = run.got[0].to_vector<double>(), expected = need.to_vector<double>();
  const auto terms = static_cast<double>(depth) + 2;
  const double error = is_exact ? 0 : growth * 0x1p-24 * terms * 4 + 0x1p-21;
  const double unit = half_unit(run.got[0].dtype());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - expected[i]), error + unit * std::abs(expected[i]))
        << run.kernel << " element " << i << ": got " << got[i] << ", need " << expected[i] << '\n'
        << run.graph;
}

constexpr int kEpilogues = 16;

// What models do with a product, whose columns run along `axis`: `bias` and `column` have a number
// for each of them, `whole` is as large as the result.
Tensor with_epilogue(int kind, const Tensor& product, int axis, const Tensor& column,
                     const Tensor& whole, const Tensor& bias, tn::DType dtype,
                     tn::DType narrowest) {
  if (kind == 0) return product;  // rounded to the type of its factors
  const Tensor y = product.astype(dtype);
  const tn::DType last = dtype == tn::f64 ? tn::f64 : narrowest;
  switch (kind) {
    case 1:
      return y;
    case 2:
      return y + bias.astype(dtype);
    case 3:
      return tn::gelu(y + bias.astype(dtype)).astype(last);
    case 4:
      return y + bias.astype(dtype) + whole;
    case 5:
      return tn::relu(y + bias.astype(dtype) + whole.astype(dtype)).astype(last);
    case 6:
      return tn::maximum(y * 0.25 + column, tn::tanh(y));
    case 7:  // a number a row, which is a view
      return y * (axis == 1 ? whole(tn::slice(tn::none, tn::none), tn::slice(0, 1))
                            : whole(tn::ellipsis, tn::slice(0, 1)));
    case 8:
      return tn::minimum(tn::maximum(y + bias.astype(dtype) + whole, -0.25), 0.5).astype(last);
    case 9:  // bounds before what remains
      return tn::maximum(tn::relu(y), 0.125) * 1.5 + column;
    case 10:  // and before what is added
      return (tn::relu(y + bias.astype(dtype)) + whole).astype(last);
    case 11:
      return tn::relu(y) * (bias * 0.25).astype(dtype) + bias.astype(dtype) + whole;
    case 12:
      return (tn::minimum(y, 0.5) * 1.5 + 0.25).astype(last);
    case 13:
      return tn::minimum(tn::leaky_relu(y + bias.astype(dtype) + whole, 0.125), 0.5).astype(last);
    case 14:  // of which only the first is done with the sums
      return tn::leaky_relu(tn::leaky_relu(y, 0.25) - 0.5, 0.5) + whole;
    default: {
      const Tensor z = y + column;
      return (z * tn::sigmoid(z) - 0.5).astype(last);
    }
  }
}

std::int64_t one_of(std::initializer_list<std::int64_t> values) {
  return values.begin()[pick(static_cast<int>(values.size()))];
}

// Of kind 7, the largest of the numbers that rows are multiplied by; of the others the steepest
// slope, which kinds 9 and 12 have.
double growth_of(int kind, const Tensor& whole) {
  return kind == 7 ? std::max(1.0, tn::max(tn::abs(whole)).item<double>()) : 1.5;
}

void check_product(const Kind& on, std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  const bool is_exact = pick(2), is_constant = pick(3), is_transposed = pick(2);
  const int kind = is_exact ? pick(2) : pick(kEpilogues);
  const auto random = [&](const Shape& shape) {
    return is_exact ? digits(shape, on.dtype) : narrow(shape, on.dtype);
  };
  const Shape batch = pick(3) ? Shape{rows} : Shape{2, rows};
  Shape left = batch, result = batch;
  left.push_back(depth), result.push_back(columns);
  const Tensor stored = is_transposed ? random({columns, depth}) : random({depth, columns});
  const Tensor bias = wide({columns});
  Tensors inputs{random(left), wide({columns}), wide(result)};
  if (!is_constant) inputs.push_back(stored);
  const auto f = [&](const Tensors& in, tn::DType dtype) {
    Tensor weight = is_constant ? stored : in[3];
    if (dtype == tn::f64) weight = weight.astype(tn::f64);
    if (is_transposed) weight = weight.transpose();
    return with_epilogue(kind, tn::matmul(in[0], weight), -1, in[1], in[2], bias, dtype, on.dtype);
  };
  expect_right(on, f, inputs, depth, is_exact, growth_of(kind, inputs[2]));
}

TEST_P(Products, OfAwkwardSizes) {
  for (const std::int64_t rows : {1, 7, 15, 16, 17, 31, 32, 33, 63, 65, 197})
    for (int round = 0; round < 20; ++round) {
      const std::int64_t depth = one_of({1, 2, 31, 32, 33, 64, 100, 768});
      const std::int64_t columns = one_of({2, 3, 4, 7, 15, 16, 17, 32, 33, 129, 300, 1000});
      check_product(GetParam(), rows, depth, columns);
      if (HasFailure()) FAIL() << rows << " rows, depth " << depth << ", columns " << columns;
    }
}

// Several parts of rows and several groups of columns for every thread.
TEST_P(Products, LargeOnes) {
  check_product(GetParam(), 700, 3072, 200);
  check_product(GetParam(), 65, 4100, 130);
  check_product(GetParam(), 5000, 64, 72);
  check_product(GetParam(), 2000, 64, 64);   // made where the result lies
  check_product(GetParam(), 300, 1024, 90);  // rows that meet in the same lines of the cache
}

TEST_P(Products, Convolutions) {
  const Kind on = GetParam();
  for (int round = 0; round < 150; ++round) {
    const bool is_exact = pick(2);
    const int kind = is_exact ? pick(2) : pick(kEpilogues);
    const auto random = [&](const Shape& shape) {
      return is_exact ? digits(shape, on.dtype) : narrow(shape, on.dtype);
    };
    // In groups, several of which make a strip of columns; one column has no epilogue.
    const std::int64_t groups = pick(3) ? 1 : one_of({2, 3, 5, 8, 16});
    const std::int64_t in = groups == 1 ? one_of({1, 3, 17, 32, 64}) : one_of({1, 2, 5, 16});
    const std::int64_t out =
        groups == 1 ? one_of({kind < 2 ? 1 : 2, 15, 32, 70}) : groups * one_of({1, 2, 3, 8, 20});
    const std::int64_t kh = 1 + pick(4), kw = pick(2) ? kh : 1 + pick(4);
    tn::Conv2dOptions options;
    if (pick(3))
      options = {{1 + pick(3), 1 + pick(3)}, {pick(3), pick(3)}, {1 + pick(2), 1 + pick(2)}, 1};
    options.groups = groups;
    const Tensor x = random({1 + pick(2), groups * in, 8 + pick(14), 8 + pick(14)});
    const Tensor weight = random({out, in, kh, kw}), bias = wide({out, 1, 1});
    const Shape result = tn::conv2d(x, weight, {}, options).shape();
    const auto f = [&](const Tensors& t, tn::DType dtype) {
      const Tensor w = dtype == tn::f64 ? weight.astype(tn::f64) : weight;
      return with_epilogue(kind, tn::conv2d(t[0], w, {}, options), 1, t[1], t[2], bias, dtype,
                           on.dtype);
    };
    const Tensor whole = wide(result);
    expect_right(on, f, {x, wide({out, 1, 1}), whole}, in * kh * kw, is_exact,
                 growth_of(kind, whole));
    if (HasFailure()) FAIL() << "round " << round << " weights " << weight.shape();
  }
}

TEST_P(Products, OfBatches) {
  const Kind on = GetParam();
  for (int round = 0; round < 60; ++round) {
    const std::int64_t rows = one_of({1, 7, 33, 50}), depth = one_of({1, 8, 31, 64});
    const std::int64_t columns = one_of({2, 16, 33, 90});
    const int kind = pick(kEpilogues);
    const bool is_transposed = pick(2);
    Shape right = one_of({0, 1}) ? Shape{2, 3} : pick(2) ? Shape{3} : Shape{2, 1};
    right.push_back(is_transposed ? columns : depth),
        right.push_back(is_transposed ? depth : columns);
    const Tensor bias = wide({columns}), whole = wide({2, 3, rows, columns});
    const auto f = [&](const Tensors& t, tn::DType dtype) {
      const Tensor b = is_transposed ? t[3].swapaxes(-1, -2) : t[3];
      return with_epilogue(kind, tn::matmul(t[0], b), -1, t[1], t[2], bias, dtype, on.dtype);
    };
    expect_right(
        on, f,
        {narrow({2, 3, rows, depth}, on.dtype), wide({columns}), whole, narrow(right, on.dtype)},
        depth, false, growth_of(kind, whole));
    if (HasFailure()) FAIL() << "round " << round << " right " << right;
  }
}

// Large windows, of which a part of the depth is gathered at a time, and the ends of images.
TEST_P(Products, LargeConvolutions) {
  struct Case {
    std::int64_t in, out, size, kernel, stride, padding, groups;
  };
  const Kind on = GetParam();
  for (const Case& c :
       {Case{300, 40, 9, 3, 1, 1, 1}, Case{3, 70, 61, 7, 2, 3, 1}, Case{3, 33, 64, 16, 16, 0, 1},
        Case{130, 300, 7, 3, 1, 1, 1}, Case{64, 24, 30, 1, 2, 0, 1}, Case{512, 96, 8, 3, 2, 1, 2},
        Case{8, 300, 40, 1, 1, 0, 1}, Case{48, 520, 5, 3, 1, 2, 1}}) {
    const int kind = pick(kEpilogues);
    const Tensor x = narrow({1 + pick(2), c.in, c.size, c.size + pick(3)}, on.dtype);
    const Tensor weight = narrow({c.out, c.in / c.groups, c.kernel, c.kernel}, on.dtype);
    const Tensor bias = wide({c.out, 1, 1});
    const tn::Conv2dOptions options = {c.stride, c.padding, 1, c.groups};
    const Tensor whole = wide(tn::conv2d(x, weight, {}, options).shape());
    const auto f = [&](const Tensors& t, tn::DType dtype) {
      const Tensor w = dtype == tn::f64 ? weight.astype(tn::f64) : weight;
      return with_epilogue(kind, tn::conv2d(t[0], w, {}, options), 1, t[1], t[2], bias, dtype,
                           on.dtype);
    };
    expect_right(on, f, {x, wide({c.out, 1, 1}), whole}, c.in / c.groups * c.kernel * c.kernel,
                 false, growth_of(kind, whole));
    if (HasFailure()) FAIL() << "kind " << kind << " weights " << weight.shape();
  }
}

// Images whose channels are neighbours, as those between convolutions are.
TEST_P(Products, ConvolutionsOfLines) {
  const Kind on = GetParam();
  bool are_lines = false;
  for (int round = 0; round < 100; ++round) {
    const bool is_exact = pick(2);
    const int kind = is_exact ? pick(2) : pick(kEpilogues);
    const auto random = [&](const Shape& shape) {
      return is_exact ? digits(shape, on.dtype) : narrow(shape, on.dtype);
    };
    const std::int64_t groups = one_of({1, 1, 2, 4, 12}), in = groups * one_of({1, 3, 8, 16}),
                       out = groups * one_of({2, 3, 4, 16, 40, 190});
    const std::int64_t kh = one_of({1, 2, 3, 5}), kw = one_of({1, 2, 3, 7});
    const tn::Conv2dOptions options = {
        {1 + pick(3), 1 + pick(2)}, {pick(4), pick(4)}, {1 + pick(2), pick(4) ? 1 : 2}, groups};
    const Tensor x = random({1 + pick(3), 9 + pick(9), 15 + pick(30), in});
    const Tensor weight = random({out, in / groups, kh, kw}), bias = wide({out, 1, 1});
    const auto image = [](const Tensor& pixels) { return pixels.transpose({0, 3, 1, 2}); };
    const Tensor whole = wide(tn::conv2d(image(x), weight, {}, options).shape());
    const auto f = [&](const Tensors& t, tn::DType dtype) {
      const Tensor w = dtype == tn::f64 ? weight.astype(tn::f64) : weight;
      return with_epilogue(kind, tn::conv2d(image(t[0]), w, {}, options), 1, t[1], t[2], bias,
                           dtype, on.dtype);
    };
    const Tensors inputs = {x, wide({out, 1, 1}), whole};
    expect_right(on, f, inputs, in / groups * kh * kw, is_exact, growth_of(kind, whole));
    if (HasFailure()) FAIL() << "round " << round << " weights " << weight.shape();
    const auto plain = [&](const Tensors& t) -> Tensors { return {f(t, tn::f32)}; };
    are_lines |=
        run_group(on.family, plain, inputs, nullptr).kernel.find(", lines") != std::string::npos;
  }
  EXPECT_EQ(are_lines, on.dtype == tn::f32 && on.family == std::string("product"));
}

TEST_P(Products, DepthwiseConvolutions) {
  Kind on = GetParam();
  if (on.family == std::string("tiles")) GTEST_SKIP() << "has no tiles";
  on.family = "depthwise";
  for (int round = 0; round < 150; ++round) {
    const bool is_exact = pick(2);
    const int kind = is_exact ? pick(2) : pick(kEpilogues);
    const auto random = [&](const Shape& shape) {
      return is_exact ? digits(shape, on.dtype) : narrow(shape, on.dtype);
    };
    const std::int64_t groups = one_of({2, 7, 8, 16, 24, 33, 72}),
                       channels = groups * one_of({1, 1, 2, 3});
    const std::int64_t kh = one_of({1, 2, 3, 5, 7}), kw = pick(2) ? kh : one_of({1, 3, 4});
    tn::Conv2dOptions options{1 + pick(2), kh / 2, 1, groups};
    if (pick(3) == 0)
      options = {
          {1 + pick(3), 1 + pick(3)}, {pick(3), pick(5)}, {1 + pick(2), 1 + pick(2)}, groups};
    const Tensor x = random({1 + pick(2), groups, 13 + pick(9), 13 + pick(30)});
    const Tensor weight = random({channels, 1, kh, kw}), bias = wide({channels, 1, 1});
    const Tensor whole = wide(tn::conv2d(x, weight, {}, options).shape());
    const auto f = [&](const Tensors& t, tn::DType dtype) {
      const Tensor w = dtype == tn::f64 ? weight.astype(tn::f64) : weight;
      return with_epilogue(kind, tn::conv2d(t[0], w, {}, options), 1, t[1], t[2], bias, dtype,
                           on.dtype);
    };
    expect_right(on, f, {x, wide({channels, 1, 1}), whole}, kh * kw, is_exact,
                 growth_of(kind, whole));
    if (HasFailure()) FAIL() << "round " << round << " weights " << weight.shape();
  }
}

// The same bits, whoever does what.
TEST_P(Products, OnAnyNumberOfThreads) {
  const Kind on = GetParam();
  const auto expect_same = [&](const char* name, const tn::TensorFunction& f, const Tensors& in) {
    const GroupRun one = run_group(name, f, in, nullptr, 1);
    ASSERT_EQ(one.got.size(), 1u);
    const auto need = one.got[0].to_vector<double>();
    for (const int threads : {2, 3, 8})
      EXPECT_EQ(run_group(name, f, in, nullptr, threads).got.at(0).to_vector<double>(), need)
          << one.kernel << ", " << threads << " threads";
  };
  const Tensor weight = narrow({300, 700}, on.dtype), bias = wide({700});
  expect_same(
      on.family,
      [&](const Tensors& in) -> Tensors { return {tn::gelu(tn::matmul(in[0], weight) + bias)}; },
      {narrow({500, 300}, on.dtype)});
  const Tensor filters = narrow({70, 300, 3, 3}, on.dtype), each = narrow({72, 1, 3, 3}, on.dtype);
  const Tensor image = narrow({1, 300, 30, 31}, on.dtype),
               small = narrow({2, 72, 60, 61}, on.dtype);
  expect_same(on.family,
              [&](const Tensors& in) -> Tensors {
                return {tn::conv2d(in[0], filters, {}, {1, 1})};
              },
              {image});
  if (on.family == std::string("tiles")) return;
  expect_same("depthwise",
              [&](const Tensors& in) -> Tensors {
                return {tn::conv2d(in[0], each, {}, {1, 1, 1, 72})};
              },
              {small});
}

// A left factor in float32 is rounded to bfloat16 as it is gathered: to the bits of a cast before.
TEST_P(Products, RoundTheirLeftFactor) {
  const Kind on = GetParam();
  if (on.dtype == tn::f32) return;  // is no narrower
  const bool can_round = on.dtype == tn::bf16 &&
                         (on.family == std::string("tiles") || tn::cpu::this_machine().has_bf16);
  const Tensor columns = narrow({70, 90}, on.dtype), filters = narrow({90, 35, 1, 1}, on.dtype);
  const auto matrix = [&](const Tensor& x) { return tn::relu(tn::matmul(x, columns)); };
  const auto image = [&](const Tensor& x) { return tn::conv2d(x, filters, {}, {2, 0, 1, 2}); };
  const std::pair<tn::Shape, std::function<Tensor(const Tensor&)>> cases[] = {
      {{3, 50, 70}, matrix}, {{2, 70, 9, 12}, image}};
  for (const auto& [shape, f] : cases)
    for (int round = 0; round < 10; ++round) {
      const tn::TensorFunction rounding = [&](const Tensors& in) -> Tensors {
        return {f(in[0].astype(on.dtype))};
      };
      const tn::TensorFunction plain = [&](const Tensors& in) -> Tensors { return {f(in[0])}; };
      const Tensor x = wide(shape);
      ASSERT_EQ(accepts(on.family, rounding, {x}), can_round);
      if (!can_round) continue;
      const Tensor need = run_group(on.family, plain, {x.astype(on.dtype)}, nullptr).got.at(0);
      const GroupRun run = run_group(on.family, rounding, {x}, &random_engine());
      EXPECT_EQ(run.got.at(0).to_vector<float>(), need.to_vector<float>()) << run.kernel;
    }
}

// Rows 4 KiB apart are not read where they lie. A task that has them to itself gathers them; where
// several need the same, they are gathered before, and the sums keep their order.
TEST(ProductFamilies, GatherWhatTasksShareOnce) {
  const Tensor weight = narrow({1024, 700}, tn::f32);
  const auto f = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight)}; };
  const Tensors in{narrow({150, 1024}, tn::f32)};
  const GroupRun one = run_group("product", f, in, nullptr, 1);
  const GroupRun two = run_group("product", f, in, nullptr, 2);
  EXPECT_EQ(one.kernel.find("gathered first"), std::string::npos) << one.kernel;
  EXPECT_NE(two.kernel.find("gathered first"), std::string::npos) << two.kernel;
  EXPECT_EQ(one.got.at(0).to_vector<float>(), two.got.at(0).to_vector<float>());
}

// Lanes lie along the depth where columns would leave most of them idle, and the depth is long.
TEST(ProductFamilies, GoAlongTheDepthForFewColumns) {
  const auto goes = [](const Tensor& x, const Tensor& weight, bool is_image) {
    const auto f = [&](const Tensors& in) -> Tensors {
      return {is_image ? tn::conv2d(in[0].transpose({0, 3, 1, 2}), weight)
                       : tn::matmul(in[0], weight)};
    };
    const std::string kernel = run_group("product", f, {x}, nullptr).kernel;
    return kernel.find("along the depth") != std::string::npos;
  };
  const std::int64_t few = tn::simd::table().few_columns;
  EXPECT_TRUE(goes(wide({100, 200}), wide({200, few}), false));
  EXPECT_FALSE(goes(wide({100, 200}), wide({200, few + 1}), false));
  EXPECT_FALSE(goes(wide({100, 9}), wide({9, few}), false));
  EXPECT_TRUE(goes(wide({1, 30, 40, 32}), wide({few, 32, 9, 9}), true));
  EXPECT_FALSE(goes(wide({1, 30, 40, 3}), wide({few, 3, 3, 3}), true));
}

TEST(ProductFamilies, Decline) {
  const Tensor x = narrow({33, 64}), w = narrow({64, 48});
  const auto declines = [](const tn::TensorFunction& f, const Tensors& in) {
    return !accepts("tiles", f, in) && !accepts("product", f, in);
  };
  const auto product = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], w)}; };
  EXPECT_EQ(accepts("tiles", product, {x}), tn::simd::has_tiles());
  EXPECT_TRUE(accepts("product", product, {x}));
  // As on a processor without the instructions, or with TENSOR_MAX_ISA=avx512_bf16.
  tn::cpu::Machine machine = tn::cpu::this_machine();
  machine.tile_gflops = 0;
  const tn::Graph graph = graph_of(product, {x});
  EXPECT_FALSE(estimate_of(family("tiles"), lay_out(graph), whole_group(graph), machine));
  EXPECT_FALSE(accepts(
      "tiles", [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], w.astype(tn::f32))}; },
      {x.astype(tn::f32)}));
  // Each pixel would be rounded nine times, or is read as it was, too.
  const Tensor filters = narrow({8, 4, 3, 3});
  EXPECT_TRUE(declines(
      [&](const Tensors& in) -> Tensors { return {tn::conv2d(in[0].astype(tn::bf16), filters)}; },
      {wide({1, 4, 8, 8})}));
  EXPECT_TRUE(declines(
      [&](const Tensors& in) -> Tensors {
        const Tensor rounded = in[0].astype(tn::bf16);
        return {tn::matmul(rounded, narrow({64, 64})) + rounded};
      },
      {wide({33, 64})}));
  EXPECT_TRUE(declines(
      [&](const Tensors& in) -> Tensors { return {tn::softmax(tn::matmul(in[0], w), -1)}; }, {x}));
}

}  // namespace

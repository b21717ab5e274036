// Every pass keeps what a graph computes; every simplification rule is tried on random inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/trace/fuse.h"
#include "src/trace/layout.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/fold_scale.h"
#include "src/trace/passes/simplify.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

int count(const Graph& graph, tn::Op op) {
  int found = 0;
  for (tn::ValueId id = 0; id < graph.size(); ++id) found += graph.is_op(id, op);
  return found;
}

// Both graphs on the same inputs: equal up to `ulps` float32 roundings of the largest magnitude.
void expect_same(const Graph& before, const Graph& after, const Tensors& inputs, double ulps) {
  tn::verify(after, "test");
  const Tensors a = tn::interpret(before, inputs), b = tn::interpret(after, inputs);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].type(), b[i].type());
    const auto x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
    double largest = 0;
    for (const double value : x) largest = std::max(largest, std::abs(value));
    for (std::size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], ulps * 1.2e-7 * largest);
  }
}

// ---- simplify

// Of the type, fresh; a few floating values are -0, infinite or NaN.
Tensor fresh(tn::Generator& random, const tn::TensorType& type) {
  if (!tn::is_floating(type.dtype)) return random.randint(-9, 10, type.shape).astype(type.dtype);
  Tensor x = random.normal(type.shape, 0, 3, tn::f64);
  const Tensor rare = random.randint(0, 12, type.shape);
  int which = 0;
  for (const double odd : {-0.0, HUGE_VAL, -HUGE_VAL, std::nan("")})
    x = tn::where(rare == which++, tn::full({}, odd, tn::f64), x);
  return x.astype(type.dtype);
}

// A type that holds all values of this one, if another does.
tn::DType wider(tn::DType dtype) {
  if (dtype == tn::u8) return tn::f32;
  if (dtype == tn::i32) return tn::i64;
  return dtype == tn::f16 || dtype == tn::bf16 ? tn::f32 : tn::f64;
}

// The relative difference that a rule may make: x * (1 / c) is rounded twice, and x / c once; half
// an eps each, and as much to spare.
double two_eps(tn::DType dtype) { return dtype == tn::f64 ? 0x1p-51 : 0x1p-22; }

enum class Keeps { bits, nearly };

bool always(const tn::TensorType&) { return true; }

// An example of a rule on x [A, B, C] of any type. The rule must fire where `fires` says, and
// nowhere else.
struct Example {
  std::string_view rule;
  Tensor (*function)(const Tensor& x);
  bool (*fires)(const tn::TensorType& type) = always;
  Keeps keeps = Keeps::bits;
};

Tensor number(const Tensor& x, double value) { return tn::full({}, value, x.dtype()); }

std::vector<Example> examples() {
  using X = const Tensor&;
  using Type = const tn::TensorType&;
  const auto whole = [](Type type) { return !tn::is_floating(type.dtype); };
  const auto wide = [](Type type) { return type.dtype != tn::f16 && type.dtype != tn::bf16; };
  return {
      {"add_zero", [](X x) { return x + number(x, -0.0); }},
      {"add_zero", [](X x) { return number(x, -0.0) + x; }},
      {"add_zero", [](X x) { return x + number(x, 0); }, whole},
      {"subtract_zero", [](X x) { return x - tn::zeros({x.shape(2)}, x.dtype()); },
       [](Type type) { return type.shape[2] > 0; }},
      {"subtract_zero", [](X x) { return x - number(x, -0.0); }, whole},
      {"multiply_one", [](X x) { return tn::ones(x.shape(), x.dtype()) * x; },
       [](Type type) { return tn::zeros(type.shape).size() > 0; }},
      {"multiply_one", [](X x) { return x * number(x, 1); }},
      {"divide_one", [](X x) { return x / number(x, 1); }},
      {"power_one", [](X x) { return tn::power(x, number(x, 1)); }},
      {"divide_constant", [](X x) { return x / number(x, 7); }, wide, Keeps::nearly},
      {"divide_constant", [](X x) { return x / number(x, 8); }},
      {"copy", [](X x) { return tn::copy(x) * number(x, 2); }},
      {"cast_back", [](X x) { return x.astype(wider(x.dtype())).astype(x.dtype()); },
       [](Type type) { return type.dtype != tn::i64 && type.dtype != tn::f64; }},
      {"identity_view", [](X x) { return x.reshape(x.shape()); }},
      {"identity_view",
       [](X x) {
         return x.transpose({0, -2, 2});
       }},
      {"identity_view", [](X x) -> Tensor { return x(tn::all_of_axis, tn::slice(0, x.shape(1))); }},
      {"identity_view", [](X x) -> Tensor { return x(tn::slice(tn::none, tn::none, 2)); }},
      {"identity_view", [](X x) -> Tensor { return x(tn::slice(tn::none, tn::none, -1)); }},
      {"reshape_of_reshape",
       [](X x) {
         return x.reshape({x.size()}).reshape({x.shape(2), x.shape(0), x.shape(1)});
       }},
      {"transpose_of_transpose",
       [](X x) {
         return x.transpose({1, 2, 0}).transpose({1, 0, 2});
       }},
      {"transpose_of_transpose", [](X x) { return x.transpose().transpose(); }},
  };
}

// Compares the value after a rule with the eager one.
void expect_kept(const Example& example, const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.type(), want.type());
  if (!tn::is_floating(want.dtype())) {
    EXPECT_EQ(got.to_vector<std::int64_t>(), want.to_vector<std::int64_t>());
    return;
  }
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const bool is_near = example.keeps != Keeps::nearly || std::isinf(b[i])
                             ? a[i] == b[i]
                             : std::abs(a[i] - b[i]) <= two_eps(want.dtype()) * std::abs(b[i]);
    ASSERT_TRUE(is_near && std::signbit(a[i]) == std::signbit(b[i]))
        << i << ": " << a[i] << ", eager " << b[i];
  }
}

void try_rule(const Example& example, const Tensor& x) {
  const Graph before = tn::trace(
      [&](const Tensors& in) -> Tensors { return {example.function(in[0])}; }, {x.type()});
  bool fired = false;
  tn::rewrite(before, [&](tn::Rewriter& r, tn::ValueId id, const tn::Node& node) {
    for (const tn::Rule& rule : tn::simplify_rules())
      if (auto value = rule.apply(r, id, node)) {
        fired |= rule.name == example.rule;
        return value;
      }
    return std::optional<tn::ValueId>();
  });
  EXPECT_EQ(fired, example.fires(x.type())) << before;
  const Graph after = tn::simplify(before);
  tn::verify(after, "simplify");
  expect_kept(example, tn::interpret(after, {x})[0], example.function(x));
}

TEST(Passes, EverySimplificationRuleFiresAndKeepsTheResult) {
  constexpr int kSeeds = 12;
  constexpr std::int64_t kExtents[] = {0, 1, 1, 2, 3, 4, 7};
  const std::vector<Example> all = examples();
  for (int i = 0; i < kSeeds; ++i) {
    const std::uint64_t seed = tn::check::seed() + static_cast<std::uint64_t>(i);
    tn::Generator random(seed);
    const auto extent = [&] {
      return kExtents[static_cast<std::size_t>(random.randint(0, 7, {}).item<std::int64_t>())];
    };
    // Every fourth has an extent of 0, and every fourth one of 1, whatever the others have.
    const auto part = static_cast<std::int64_t>(seed % 4);
    const tn::Shape shape = {part < 2 ? part : extent(), extent(), extent()};
    for (const tn::DType dtype : {tn::f32, tn::f64, tn::f16, tn::bf16, tn::i64, tn::i32, tn::u8}) {
      const Tensor x = fresh(random, {shape, dtype});
      for (const Example& example : all) {
        SCOPED_TRACE(testing::Message()
                     << "TENSOR_SEED=" << seed << ' ' << example.rule << ' ' << x.type());
        try_rule(example, x);
      }
    }
    if (HasFailure()) return;
  }
  for (const tn::Rule& rule : tn::simplify_rules())
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const Example& example) {
      return example.rule == rule.name;
    })) << rule.name;
}

// An index makes a slice and a view of it, which is always one that changes nothing.
TEST(Passes, OnlySlicesOfEverythingInItsOrderGo) {
  const auto slices = [](std::int64_t extent, std::int64_t step) {
    const auto f = [=](const Tensors& in) -> Tensors {
      return {in[0](tn::slice(tn::none, tn::none, step))};
    };
    return count(tn::simplify(tn::trace(f, {{{extent, 4}, tn::f32}})), tn::Op::slice);
  };
  for (const std::int64_t step : {1, 2, -1}) {
    EXPECT_EQ(slices(0, step), 0) << step;
    EXPECT_EQ(slices(1, step), 0) << step;
    EXPECT_EQ(slices(3, step), step != 1) << step;
  }
}

TEST(Passes, NeutralElementsThatBroadcastOrPromoteStay) {
  const Graph wider = tn::trace(
      [](const Tensors& in) -> Tensors {
        return {in[0] + tn::full({5, 3, 4}, -0.0, tn::f32)};
      },
      {{{3, 4}, tn::f32}});
  EXPECT_EQ(count(tn::simplify(wider), tn::Op::add), 1);
}

TEST(Passes, ConstantsFoldAndEqualNodesMerge) {
  tn::Generator random(22);
  const Tensor x = random.normal({3, 4});
  Graph graph;
  const auto in = graph.add_input(x.type());
  const auto a = graph.add_constant(tn::ones({4})), b = graph.add_constant(tn::ones({4}));
  const auto sum = graph.add(tn::Op::add, {a, b});
  const auto left = graph.add(tn::Op::multiply, {in, sum}),
             right = graph.add(tn::Op::multiply, {in, sum});
  graph.add(tn::Op::exp, {in});  // dead
  graph.set_outputs({graph.add(tn::Op::add, {left, right})});
  const Graph clean = tn::eliminate_common_and_dead(tn::fold_constants(graph));
  EXPECT_EQ(count(clean, tn::Op::multiply), 1);
  EXPECT_EQ(count(clean, tn::Op::exp), 0);
  EXPECT_EQ(count(clean, tn::Op::add), 1);
  expect_same(graph, clean, {x}, 0);
}

TEST(Passes, OperatorsWithOtherDigitsAreNotEqual) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::layer_norm(in[0], {}, {}, 1.000001e-5), tn::layer_norm(in[0], {}, {}, 1.0000014e-5),
            tn::layer_norm(in[0], {}, {}, 1.000001e-5)};
  };
  const Graph graph = tn::trace(f, {{{3, 4}, tn::f32}});
  EXPECT_EQ(count(tn::eliminate_common_and_dead(graph), tn::Op::layer_norm), 2);
}

TEST(Passes, ScalesFoldIntoMatmul) {
  tn::Generator random(23);
  const Tensor x = random.normal({2, 3, 4}), weight = random.normal({4, 5}),
               scale = random.normal({5});
  const auto f = [&](const Tensors& in) -> Tensors { return {tn::matmul(in[0], weight) * scale}; };
  const Graph before = tn::trace(f, {x.type()}),
              after = tn::eliminate_common_and_dead(tn::fold_scale(before));
  EXPECT_EQ(count(after, tn::Op::multiply), 0);
  expect_same(before, after, {x}, 8);  // four products and sums, each rounded once
  // Not when the product itself is an output.
  const auto shared = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::matmul(in[0], weight);
    return {y, y * scale};
  };
  EXPECT_EQ(count(tn::fold_scale(tn::trace(shared, {x.type()})), tn::Op::multiply), 1);
}

TEST(Passes, NumbersFoldIntoTheWeightsBehindABiasAndViews) {
  tn::Generator random(24);
  const Tensor x = random.normal({2, 3, 4}), weight = random.normal({8, 4}),
               bias = random.normal({8});
  const auto heads = [](const Tensor& y) {
    return y.reshape({2, 3, 2, 4}).transpose({0, 2, 1, 3});
  };
  const auto f = [&](const Tensors& in) -> Tensors {
    return {heads(tn::linear(in[0], weight, bias)) * 0.3};
  };
  const Graph before = tn::fold_constants(tn::trace(f, {x.type()})),
              after = tn::eliminate_common_and_dead(tn::fold_scale(before));
  EXPECT_EQ(count(after, tn::Op::multiply), 0);
  expect_same(before, after, {x}, 16);  // as above, and the factor rounds twice
  for (tn::ValueId id = 0; id < after.size(); ++id)
    if (after.is_op(id, tn::Op::matmul)) {
      const tn::Strides strides = after[after[id].inputs[1]].constant.strides();
      EXPECT_LT(strides[0], strides[1]) << "the weights lie as they did: outputs one by one";
    }
  // Not when something else reads what is scaled.
  const auto shared = [&](const Tensors& in) -> Tensors {
    const Tensor y = tn::linear(in[0], weight, bias);
    return {heads(y) * 0.3, y + 1};
  };
  EXPECT_EQ(
      count(tn::fold_scale(tn::fold_constants(tn::trace(shared, {x.type()}))), tn::Op::multiply),
      1);
}

// ---- cast_norms

// After the passes of a program in `dtype`.
Graph cast_for(const tn::TensorFunction& function, const std::vector<tn::TensorType>& types,
               tn::DType dtype) {
  const Graph products = tn::cast_products(tn::fold_constants(tn::trace(function, types)), dtype);
  const Graph norms = tn::cast_norms(products, dtype);
  tn::verify(norms, "cast_norms");
  return tn::eliminate_common_and_dead(norms);
}

// The layer_norms that are given sums of what they read, which is rounded to f16.
int norms_with_sums(const tn::TensorFunction& function) {
  const Graph graph = cast_for(function, {{{2, 6, 64}, tn::f32}, {{2, 6, 64}, tn::f16}}, tn::f16);
  int found = 0;
  for (tn::ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_op(id, tn::Op::layer_norm)) continue;
    EXPECT_EQ(graph.type(id).dtype, tn::f32) << "statistics stay float32";
    const auto& inputs = graph[id].inputs;
    if (inputs.size() < 4) continue;
    ++found;
    const tn::ValueId rows = graph[inputs[0]].inputs[0];
    EXPECT_TRUE(graph.is_op(rows, tn::Op::astype) && graph.type(rows).dtype == tn::f16);
    EXPECT_TRUE(graph.is_op(inputs[3], tn::Op::row_sums) && graph[inputs[3]].inputs[0] == rows);
  }
  return found;
}

TEST(Passes, NormsOfProductsByProductsAreGivenSums) {
  tn::Generator random(26);
  const Tensor a = random.normal({64, 64}), b = random.normal({64, 64}),
               gamma = random.normal({64}), beta = random.normal({64});
  const auto norm = [&](const Tensor& x) { return tn::layer_norm(x, gamma, beta); };
  const auto made = [&](const Tensor& x) { return tn::matmul(x, b) + beta + x; };
  const auto count_in = [](auto f) {
    return norms_with_sums([f](const Tensors& in) -> Tensors { return {f(in[0])}; });
  };
  // Of two products, and of one behind views.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return tn::matmul(y, a) * tn::matmul(y, b);
            }),
            1);
  EXPECT_EQ(
      count_in([&](const Tensor& x) { return tn::matmul(norm(made(x))(tn::all_of_axis, 0), a); }),
      1);
  // Not of what no product makes, or only seen through a view, or for others as well.
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(tn::exp(x)), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(norm(made(x))), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(norm(made(x).swapaxes(0, 1)), a); }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              const Tensor product = tn::matmul(in[0], b);
              return {product, tn::matmul(norm(product + in[0]), a)};
            }),
            0);
  // Nor without weight and bias, nor of rows that are no whole pieces.
  EXPECT_EQ(count_in([&](const Tensor& x) { return tn::matmul(tn::layer_norm(made(x)), a); }), 0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = tn::matmul(x, random.normal({64, 40}));
              return tn::matmul(tn::layer_norm(y, gamma(tn::slice(0, 40)), beta(tn::slice(0, 40))),
                                a(tn::slice(0, 40)));
            }),
            0);
  // Nor when somebody else reads the normalised value: a residual, the caller, attention.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return y + tn::matmul(y, a);
            }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              const Tensor y = norm(made(in[0]));
              return {tn::matmul(y, a), y.swapaxes(0, 1)};
            }),
            0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              const Tensor y = norm(made(x));
              return tn::matmul(tn::matmul(y, a), y.swapaxes(1, 2).reshape({2, 64, 6}));
            }),
            0);
  // Nor as the right operand, nor where the weight is the caller's, nor when the input is narrow.
  EXPECT_EQ(count_in([&](const Tensor& x) {
              return tn::matmul(b(tn::slice(0, 6), tn::slice(0, 6)), norm(made(x)));
            }),
            0);
  EXPECT_EQ(count_in([&](const Tensor& x) {
              return tn::matmul(tn::layer_norm(made(x), x(0, 0), beta), a);
            }),
            0);
  EXPECT_EQ(norms_with_sums([&](const Tensors& in) -> Tensors {
              return {tn::matmul(norm(tn::exp(in[1]).astype(tn::f32)), a)};
            }),
            0);
}

// f64 weights make a float64 function; in f32 all of x, mean and deviation are as good as exact.
TEST(Passes, RoundingBeforeANormCostsWhatTheBoundSays) {
  constexpr std::int64_t kRows = 24, kWidth = 128, kColumns = 40;
  tn::Generator random(27);
  const Tensor w = random.normal({kWidth, kColumns}), gamma = random.normal({kWidth}, 1, 0.3f),
               beta = random.normal({kWidth}), one = tn::eye(kWidth);
  for (const auto& [dtype, unit] : {std::pair{tn::f16, 0x1p-11}, {tn::bf16, 0x1p-8}})
    for (const double mean : {0.0, 0.5, 8.0}) {
      SCOPED_TRACE(testing::Message() << dtype << ", mean " << mean);
      // Of so few digits that a product by 1 in the narrow type is exact.
      const Tensor input = tn::round(random.normal({kRows, kWidth}) * 16) / 16 + mean;
      const tn::TensorFunction f = [&](const Tensors& in) -> Tensors {
        return {tn::matmul(tn::layer_norm(tn::matmul(in[0], one) * 3.0, gamma, beta), w)};
      };
      const Graph graph = cast_for(f, {input.type()}, dtype);
      ASSERT_EQ(count(graph, tn::Op::row_sums), 1) << graph;
      ASSERT_EQ(count(graph, tn::Op::astype), 6) << graph;
      const auto got = tn::interpret(graph, {input})[0].to_vector<double>();
      const Tensor x = input.astype(tn::f64) * 3.0, w64 = w.astype(tn::f64);
      const Tensor centred = x - tn::mean(x, -1, true);
      const Tensor deviation = tn::sqrt(tn::mean(centred * centred, -1, true) + 1e-5);
      const Tensor unit_rows = centred / deviation;
      const Tensor normal = unit_rows * gamma.astype(tn::f64) + beta.astype(tn::f64);
      const Tensor exact = tn::matmul(normal, w64);
      // To first order: rounding moves x by u |x|, a row's mean by u rms(x) at most and its
      // deviation, as a share of it, by u rms(x) / deviation. Then the normalised value, the
      // weights and the result are rounded.
      const Tensor rms = tn::sqrt(tn::mean(x * x, -1, true));
      const Tensor moved = (tn::abs(x) + rms + tn::abs(unit_rows) * rms) / deviation *
                           tn::abs(gamma.astype(tn::f64));
      const Tensor bound =
          (tn::matmul(moved + 2.0 * tn::abs(normal), tn::abs(w64)) + tn::abs(exact)) * unit;
      const auto y = exact.to_vector<double>(), most = bound.to_vector<double>();
      double square = 0, largest = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        // A tenth for what is of second order: u rms(x) / deviation is 1/32 at most.
        ASSERT_NEAR(got[i], y[i], 1.1 * most[i]);
        square += std::pow(got[i] - y[i], 2), largest = std::max(largest, most[i]);
      }
      // The errors are independent, so that few of these sums come near the bound.
      EXPECT_LT(std::sqrt(square / static_cast<double>(y.size())), largest / 4);
      EXPECT_GT(square, 0);
    }
}

// Tensor Cores may round every product of float32, and no other; for the reference nothing changes.
TEST(Passes, ProductsAreMarkedForTf32) {
  tn::Generator random(25);
  const Tensor x = random.normal({1, 2, 4, 4}), w = random.normal({3, 2, 3, 3}),
               v = random.normal({2, 5});
  const Graph before = tn::trace(
      [&](const Tensors& in) -> Tensors {
        const Tensor y = tn::conv2d(in[0], w);
        const Tensor narrow = tn::matmul(y.astype(tn::bf16), v.astype(tn::bf16));
        return {tn::matmul(tn::relu(y), v), narrow};
      },
      {x.type()});
  const Graph after = tn::round_products(before);
  expect_same(before, after, {x}, 0);
  int marked = 0;
  for (tn::ValueId id = 0; id < after.size(); ++id) {
    const bool is_product = after.is_op(id, tn::Op::matmul) || after.is_op(id, tn::Op::conv2d);
    const bool is_marked = after[id].attrs.flag("tf32", false);
    EXPECT_EQ(is_marked, is_product && after.type(id).dtype == tn::f32) << id;
    marked += is_marked;
  }
  EXPECT_EQ(marked, 2);
}

TEST(Passes, LayoutMakesMergedHeadsAView) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {(in[0] * 2.0).transpose({0, 2, 1, 3}).reshape({2, 5, 12})};
  };
  const tn::LaidOutGraph laid = tn::lay_out(tn::trace(f, {{{2, 3, 5, 4}, tn::f32}}));
  EXPECT_EQ(count(laid.graph, tn::Op::copy), 0);
  EXPECT_EQ(laid.layouts[static_cast<std::size_t>(laid.graph.outputs()[0])].strides,
            tn::row_major({2, 5, 12}));
  // A graph input lies row-major, so there the view needs a copy.
  const auto g = [](const Tensors& in) -> Tensors {
    return {in[0].transpose({0, 2, 1, 3}).reshape({2, 5, 12}) + 1.0};
  };
  EXPECT_EQ(count(tn::lay_out(tn::trace(g, {{{2, 3, 5, 4}, tn::f32}})).graph, tn::Op::copy), 1);
}

// The factor is stored in the divisor's type, which may not hold it.
TEST(Passes, DivisionsByNumbersWithoutAReciprocalStay) {
  const auto divisions = [](double divisor, tn::DType dtype) {
    const Graph before = tn::fold_constants(
        tn::trace([&](const Tensors& in) -> Tensors { return {in[0] / divisor}; }, {{{4}, dtype}}));
    return count(tn::simplify(before), tn::Op::divide);
  };
  for (const tn::DType dtype : {tn::f16, tn::bf16}) {
    EXPECT_EQ(divisions(8, dtype), 0);
    EXPECT_EQ(divisions(-0.25, dtype), 0);
    EXPECT_EQ(divisions(3, dtype), 1) << "1 / 3 would be rounded to " << dtype;
  }
  EXPECT_EQ(divisions(0x1p-16, tn::f16), 1) << "2^16 is infinite";
  EXPECT_EQ(divisions(0x1p15, tn::f16), 1) << "2^-15 has no full digits";
  EXPECT_EQ(divisions(0x1p15, tn::bf16), 0);
  EXPECT_EQ(divisions(1e-5, tn::f32), 0);
  EXPECT_EQ(divisions(1e-39, tn::f32), 1);
  EXPECT_EQ(divisions(3e38, tn::f32), 1);
  EXPECT_EQ(divisions(3e38, tn::f64), 0);
  EXPECT_EQ(divisions(0, tn::f32), 1);
}

// f64 does not hold every i64.
TEST(Passes, CastsThereAndBackStayWhereTheyRound) {
  const auto casts = [](tn::DType narrow, tn::DType wide) {
    const auto f = [=](const Tensors& in) -> Tensors {
      return {in[0].astype(wide).astype(narrow)};
    };
    return count(tn::eliminate_common_and_dead(tn::simplify(tn::trace(f, {{{4}, narrow}}))),
                 tn::Op::astype);
  };
  EXPECT_EQ(casts(tn::i64, tn::f64), 2);
  EXPECT_EQ(casts(tn::i32, tn::f64), 0);
  EXPECT_EQ(casts(tn::i32, tn::f32), 2);
  EXPECT_EQ(casts(tn::bf16, tn::f32), 0);
}

// A weight times a scale may be infinite, or have lost its digits, where the product is neither.
TEST(Passes, ScalesThatWeightsCannotTakeStay) {
  tn::Generator random(25);
  const auto multiplications = [&](const Tensor& weight, const Tensor& scale) {
    const auto f = [&](const Tensors& in) -> Tensors {
      return {tn::matmul(in[0], weight) * scale};
    };
    const Graph graph = tn::fold_constants(tn::trace(f, {{{3, 4}, weight.dtype()}}));
    return count(tn::eliminate_common_and_dead(tn::fold_scale(graph)), tn::Op::multiply);
  };
  const Tensor weight = random.normal({4, 5});
  for (const tn::DType dtype : {tn::f16, tn::bf16})
    for (const tn::Shape& shape : {tn::Shape{}, tn::Shape{5}})
      EXPECT_EQ(multiplications(weight.astype(dtype), tn::full(shape, 0.3, dtype)), 1);
  for (const double scale : {1e30, 1e-30, static_cast<double>(INFINITY)})
    for (const tn::Shape& shape : {tn::Shape{}, tn::Shape{5}})
      EXPECT_EQ(multiplications(weight, tn::full(shape, scale)), 1) << scale;
  // One channel that is switched off does not keep the others from it.
  const Tensor pruned = tn::array({1.0f, 0.0f, 1e-40f, -2.0f, 0.5f});
  EXPECT_EQ(multiplications(weight, pruned), 0);
}

// A plan file has the copy that a view needed as an operator, and is laid out again.
TEST(Passes, LayingOutTwiceChangesNothing) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {tn::exp(in[0].transpose().reshape({32}))};
  };
  const tn::LaidOutGraph once = tn::lay_out(tn::trace(f, {{{4, 8}, tn::f32}})),
                         twice = tn::lay_out(once.graph);
  ASSERT_EQ(count(once.graph, tn::Op::copy), 1);
  ASSERT_EQ(twice.graph.size(), once.graph.size());
  for (std::size_t i = 0; i < once.layouts.size(); ++i)
    EXPECT_EQ(twice.layouts[i].strides, once.layouts[i].strides) << i;
}

}  // namespace

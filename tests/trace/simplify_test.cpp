// Every simplification rule, tried on random inputs of many types against the eager run.
#include "src/trace/passes/simplify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/trace/passes/clean.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"
#include "tests/seed.h"
#include "tests/trace/passes.h"

namespace tn = tensor;
using tn::Graph;
using tn::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

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

// values: zeros may change their sign. activation: the difference is small beside x, whatever the
// result is: one of the two has lost its digits where 1 + erf(x) is nearly 0.
// By how much at most seven products of the numbers of x by at most 2 may differ that are summed in
// another order: each addition rounds by half an eps of 14 |x|, and the result to a 16-bit type.
double sum_error(const Tensor& x, tn::DType dtype, double sum) {
  double largest = 0;
  for (const double number : x.to_vector<double>())
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  const double place = dtype == tn::f16 ? 0x1p-10 : dtype == tn::bf16 ? 0x1p-7 : 0;
  return 7 * 7 * two_eps(dtype) / 2 * largest + place * std::abs(sum);
}

enum class Keeps { bits, values, nearly, sums, activation };

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

bool has_elements(const tn::TensorType& type) { return tn::num_elements(type.shape) > 0; }
// Whether x can be A channels of B x C pixels.
bool is_image(const tn::TensorType& type) {
  return tn::is_floating(type.dtype) && tn::num_elements(type.shape) > 0;
}
Tensor convolved(const Tensor& x, std::int64_t size, const tn::Conv2dOptions& options) {
  if (!is_image(x.type())) return x;
  const Tensor filter = tn::full({1, x.shape(0), size, size}, 0.5, x.dtype());
  return tn::conv2d(x.expand_dims(0), filter, {}, options);
}

// 1 + erf(x / sqrt(2)), twice the normal distribution.
Tensor distribution(const Tensor& x) {
  return tn::erf(x / number(x, std::sqrt(2.0))) + number(x, 1);
}

Tensor weights_of(const Tensor& x, int axis) {
  return tn::softmax(tn::is_floating(x.dtype()) ? x : x.astype(tn::f32), axis);
}

// One row for each head and place, by a factor for each place of so many heads.
Tensor heads_by_places(const Tensor& x, std::int64_t heads) {
  const std::int64_t places = x.shape(1), depth = x.shape(2);
  const Tensor factors = (tn::arange(heads * places * depth * 2) % 3).astype(x.dtype());
  return tn::matmul(x.reshape({x.shape(0), places, 1, depth}),
                    factors.reshape({heads, places, depth, 2}));
}

std::vector<Example> examples() {
  using X = const Tensor&;
  using Type = const tn::TensorType&;
  const auto whole = [](Type type) { return !tn::is_floating(type.dtype); };
  const auto floats = [](Type type) { return type.dtype == tn::f32 || type.dtype == tn::f64; };
  const auto nowhere = [](Type) { return false; };
  const auto wide = [](Type type) { return type.dtype != tn::f16 && type.dtype != tn::bf16; };
  return {
      {"known_choice", [](X x) { return tn::where(tn::array({true}), x, number(x, 1)); }},
      {"known_choice", [](X x) { return tn::where(tn::array({false}), number(x, 1), x); }},
      {"known_choice", [](X x) { return tn::where(x > number(x, 0), x, x); }},
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
      {"short_fold",
       [](X x) {
         return tn::sum(tn::stack({x, x * x}), 0);
       },
       floats},
      {"short_fold",
       [](X x) {
         return tn::mean(tn::stack({x, x * x}), 0, true);
       },
       floats},
      {"short_fold",
       [](X x) {
         return tn::max(tn::stack({x, x * x, -x, x}), 0);
       }},
      {"short_fold",
       [](X x) {
         return tn::min(tn::stack({x, x * x, x}), 0);
       }},
      {"short_fold",
       [](X x) {
         return tn::max(tn::stack({x, x, x, x, x}), 0);
       },
       nowhere},
      {"short_fold",
       [](X x) {
         return tn::max(tn::stack({x, x}, 3), 3);
       },
       nowhere},
      {"concatenate_parts",
       [](X x) {
         return tn::concatenate({x, x(tn::slice(0, 0)), number(x, 1) + x}, 0);
       },
       has_elements},
      {"concatenate_parts", [](X x) { return tn::concatenate(std::vector(130, x), 1); },
       has_elements},
      {"concatenate_parts",
       [](X x) {
         return tn::concatenate({x, x}, 0);
       },
       nowhere},
      {"shared_factor", [](X x) { return heads_by_places(x, 1); },
       [](Type type) { return type.shape[0] > 1 && type.shape[1] > 1; }, Keeps::sums},
      {"shared_factor", [](X x) { return heads_by_places(x, x.shape(0)); }, nowhere},
      {"turned_weights",
       [](X x) {
         return tn::matmul(x, weights_of(x, -1).transpose({0, 2, 1}));
       },
       [](Type type) { return type.dtype != tn::i32 && type.dtype != tn::i64; },  // f64 then
       Keeps::sums},
      {"turned_weights",
       [](X x) {
         return tn::matmul(x.transpose({2, 0, 1}), weights_of(x, 2).transpose({2, 1, 0}));
       },
       nowhere},
      {"turned_weights",
       [](X x) {
         return tn::matmul(x, weights_of(x, 1).transpose({0, 2, 1}));
       },
       nowhere},
      {"unread_taps",
       [](X x) {
         return convolved(x, 5, {1, 14, 7});
       },
       is_image, Keeps::values},
      {"unread_taps",
       [](X x) {
         return convolved(x, 3, {1, 1});
       },
       [](Type type) { return is_image(type) && (type.shape[1] == 1 || type.shape[2] == 1); },
       Keeps::values},
      {"composed_silu", [](X x) { return x * tn::sigmoid(x); }, floats, Keeps::activation},
      {"composed_silu", [](X x) { return tn::sigmoid(x) * x; }, floats, Keeps::activation},
      {"composed_silu", [](X x) { return x * tn::sigmoid(-x); }, nowhere},
      {"composed_gelu", [](X x) { return x * number(x, 0.5) * distribution(x); }, floats,
       Keeps::activation},
      {"composed_gelu", [](X x) { return x * (distribution(x) * number(x, 0.5)); }, floats,
       Keeps::activation},
      {"composed_gelu", [](X x) { return number(x, 0.5) * (x * distribution(x)); }, floats,
       Keeps::activation},
      {"composed_gelu", [](X x) { return x * number(x, 0.25) * distribution(x); }, nowhere,
       Keeps::activation},
      {"composed_gelu", [](X x) { return -x * number(x, 0.5) * distribution(x); }, nowhere,
       Keeps::activation},
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
      {"view_chain",
       [](X x) {
         return x.transpose({1, 0, 2}).reshape({x.shape(1) * x.shape(0), x.shape(2)}).transpose();
       },
       has_elements},
      {"view_chain",
       [](X x) {
         const Tensor y = x.transpose({2, 0, 1}).reshape({x.shape(2) * x.shape(0), x.shape(1)});
         return y.transpose().reshape({x.shape(1), x.shape(2), x.shape(0)}) * number(x, 2);
       },
       has_elements},
  };
}

// Compares the value after a rule with the eager one.
void expect_kept(const Example& example, const Tensor& x, const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.type(), want.type());
  if (!tn::is_floating(want.dtype())) {
    EXPECT_EQ(got.to_vector<std::int64_t>(), want.to_vector<std::int64_t>());
    return;
  }
  const auto a = got.to_vector<double>(), b = want.to_vector<double>();
  if (example.keeps == Keeps::activation && x.dtype() == want.dtype()) {
    const auto at = x.to_vector<double>();
    for (std::size_t i = 0; i < b.size(); ++i)
      ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
                  std::abs(a[i] - b[i]) <= two_eps(x.dtype()) * std::abs(at[i]))
          << a[i] << ", eager " << b[i] << " of " << at[i];
    return;
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (example.keeps == Keeps::sums) {
      ASSERT_TRUE(a[i] == b[i] || std::abs(a[i] - b[i]) <= sum_error(x, want.dtype(), b[i]))
          << i << ": " << a[i] << ", eager " << b[i];
      continue;
    }
    const bool is_near = example.keeps != Keeps::nearly || std::isinf(b[i])
                             ? a[i] == b[i]
                             : std::abs(a[i] - b[i]) <= two_eps(want.dtype()) * std::abs(b[i]);
    ASSERT_TRUE(is_near &&
                (example.keeps == Keeps::values || std::signbit(a[i]) == std::signbit(b[i])))
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
  expect_kept(example, x, tn::interpret(after, {x})[0], example.function(x));
}

TEST(Simplify, EverySimplificationRuleFiresAndKeepsTheResult) {
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
TEST(Simplify, OnlySlicesOfEverythingInItsOrderGo) {
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

// The patches of MobileViT: from images to tokens of two by two pixels, and back.
TEST(Simplify, ChainsOfViewsBecomeOneTranspose) {
  const Tensor x = tn::arange(2 * 5 * 6 * 8).reshape({2, 5, 6, 8});
  const auto to_tokens = [](const Tensor& image) {
    const Tensor patches = image.reshape({2 * 5 * 3, 2, 4, 2}).transpose({0, 2, 1, 3});
    return patches.reshape({2, 5, 12, 4}).transpose({0, 3, 2, 1}).reshape({2 * 4, 12, 5});
  };
  const auto to_image = [](const Tensor& tokens) {
    const Tensor patches = tokens.reshape({2, 4, 12, 5}).transpose({0, 3, 2, 1});
    return patches.reshape({2 * 5 * 3, 4, 2, 2}).transpose({0, 2, 1, 3}).reshape({2, 5, 6, 8});
  };
  const auto expect_one = [](const tn::TensorFunction& f, const Tensor& from) {
    const Graph before = tn::trace(f, {from.type()});
    const Graph after = tn::eliminate_common_and_dead(tn::simplify(before));
    EXPECT_EQ(count(after, tn::Op::transpose), 1) << after;
    EXPECT_EQ(count(after, tn::Op::reshape), 2) << after;
    expect_same(before, after, {from}, 0);
  };
  expect_one([&](const Tensors& in) -> Tensors { return {to_tokens(in[0])}; }, x);
  expect_one([&](const Tensors& in) -> Tensors { return {to_image(in[0])}; }, to_tokens(x));
  // A piece of 6 has no divisor 4: the chain stays as it is.
  const Graph odd = tn::trace(
      [](const Tensors& in) -> Tensors {
        return {in[0].transpose({1, 0}).reshape({4, 9}).transpose({1, 0})};
      },
      {{{6, 6}, tn::f32}});
  EXPECT_EQ(count(tn::eliminate_common_and_dead(tn::simplify(odd)), tn::Op::transpose), 2);
}

TEST(Simplify, NeutralElementsThatBroadcastOrPromoteStay) {
  const Graph wider = tn::trace(
      [](const Tensors& in) -> Tensors {
        return {in[0] + tn::full({5, 3, 4}, -0.0, tn::f32)};
      },
      {{{3, 4}, tn::f32}});
  EXPECT_EQ(count(tn::simplify(wider), tn::Op::add), 1);
}

// The factor is stored in the divisor's type, which may not hold it.
TEST(Simplify, DivisionsByNumbersWithoutAReciprocalStay) {
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
TEST(Simplify, CastsThereAndBackStayWhereTheyRound) {
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

}  // namespace

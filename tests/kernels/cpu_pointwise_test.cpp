// The pointwise family against the reference: random programs, shapes, layouts and types.
#include <gtest/gtest.h>

#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/elementwise.h"
#include "tensor/compile.h"
#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

Shape any_shape() {
  constexpr std::int64_t kExtents[] = {1, 2, 3, 7, 16, 33, 63, 65, 197, 257};
  Shape shape;
  for (int rank = 1 + pick(4); rank > 0; --rank) shape.push_back(kExtents[pick(10)]);
  while (tn::num_elements(shape) > 60000) shape[pick(shape.rank())] = 1 + pick(5);
  return shape;
}

Tensor any_tensor(const Shape& shape, tn::DType dtype = tn::f32) {
  tn::Generator random(random_engine()());
  if (dtype == tn::boolean) return random.randint(0, 2, shape).astype(tn::boolean);
  if (!tn::is_floating(dtype))
    return random.randint(dtype == tn::u8 ? 0 : -99, 100, shape).astype(dtype);
  return random.normal(shape).astype(dtype);
}

// Some axes dropped or made 1.
Shape broadcastable(const Shape& shape) {
  Shape result = shape;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (pick(3) == 0) result[axis] = 1;
  while (result.rank() > 0 && pick(3) == 0) result.erase(0);
  return result;
}

struct Unary {
  Tensor (*f)(const Tensor&);
  bool is_exact;
};
constexpr Unary kUnary[] = {
    {tn::negative, true}, {tn::abs, true},          {tn::sign, true},      {tn::square, true},
    {tn::relu, true},     {tn::floor, true},        {tn::ceil, true},      {tn::round, true},
    {tn::exp, false},     {tn::tanh, false},        {tn::erf, false},      {tn::sigmoid, false},
    {tn::gelu, false},    {tn::gelu_tanh, false},   {tn::silu, false},     {tn::hardswish, false},
    {tn::sin, false},     {tn::cos, false},         {tn::softplus, false}, {tn::mish, false},
    {tn::selu, false},    {tn::hardsigmoid, false}, {tn::arctan, false},   {tn::trunc, true},
};
constexpr Tensor (*kBinary[])(const Tensor&, const Tensor&) = {tn::add, tn::subtract, tn::multiply,
                                                               tn::maximum, tn::minimum};

// Operands whose innermost axes differ, in several blocks: images with their channels first and
// last, whatever the result has.
TEST(Pointwise, TurnedOperands) {
  for (int round = 0; round < 60; ++round) {
    constexpr std::int64_t kChannels[] = {1, 2, 3, 17, 64, 100, 256, 600};
    const std::int64_t channels = kChannels[pick(8)];
    const Shape shape{1 + pick(2), channels, 9 + pick(20), 5 + pick(40)};
    const Shape last{shape[0], shape[2], shape[3], channels};
    const int kind = pick(3);
    const auto f = [&](const Tensors& in) -> Tensors {
      const Tensor y = in[1].transpose({0, 3, 1, 2});
      if (kind == 0) return {in[0] + y};
      if (kind == 1) return {in[0] * in[2] - y};
      return {in[0] + y, (in[0] * 2.0 - y) * in[2]};
    };
    const Tensors inputs{any_tensor(shape), any_tensor(last), any_tensor({channels, 1, 1})};
    for (std::mt19937* random : {static_cast<std::mt19937*>(nullptr), &random_engine()})
      expect_close(run_group("pointwise", f, inputs, random), 0);
    if (HasFailure()) FAIL() << "round " << round << ", " << shape;
  }
}

// Rows that are longer than a block, with a number each, beside an operand whose rows lie turned.
TEST(Pointwise, TurnedRowsLongerThanABlock) {
  for (int round = 0; round < 20; ++round) {
    const std::int64_t rows = 2 + pick(20), columns = 4000 + pick(9000);
    const Tensors inputs{any_tensor({rows, columns}), any_tensor({columns, rows}),
                         any_tensor({rows, 1})};
    const auto f = [](const Tensors& in) -> Tensors {
      return {in[0] * in[2] + in[1].transpose({1, 0})};
    };
    for (std::mt19937* random : {static_cast<std::mt19937*>(nullptr), &random_engine()})
      expect_close(run_group("pointwise", f, inputs, random), 0);
    if (HasFailure()) FAIL() << rows << " x " << columns;
  }
}

// Programs of exact operators must agree in every bit, in any type; the others within what their
// functions and the steps after them lose.
TEST(Pointwise, RandomPrograms) {
  for (int round = 0; round < 600; ++round) {
    const bool exact = pick(2);
    const tn::DType dtype = pick(3) ? tn::f32 : pick(2) ? tn::bf16 : tn::f16;
    const Shape shape = any_shape();
    Tensors inputs{any_tensor(shape, dtype)};
    std::vector<int> choices;
    const int length = 1 + pick(6);
    for (int i = 0; i < length; ++i) {
      choices.push_back(pick(1000));
      if (inputs.size() < 4) inputs.push_back(any_tensor(broadcastable(shape), dtype));
    }
    const double number = 0.1 * (1 + pick(30));
    // With a wobble the result of every step is off by that share, up and down in turn.
    const auto wobbling = [&](const Tensors& in, double wobble) -> Tensors {
      Tensor x = in[0], y = in[0];
      for (int i = 0; i < length; ++i) {
        const int choice = choices[static_cast<std::size_t>(i)];
        const std::size_t other = 1 + static_cast<std::size_t>(choice / 7) % (in.size() - 1);
        switch (choice % 7) {
          case 0:
          case 1: {
            const Unary& u = kUnary[static_cast<std::size_t>(choice / 7) % std::size(kUnary)];
            // Exponentials of sums would overflow; steps would turn an error into one.
            const bool is_step =
                u.f == tn::floor || u.f == tn::ceil || u.f == tn::round || u.f == tn::sign;
            if (exact ? u.is_exact : !is_step)
              y = x = u.f(u.f == tn::exp ? tn::minimum(x, in[0]) : x);
            break;
          }
          case 2:
            x = x * number;
            break;
          case 3:
            if (exact) x = tn::where(in[other] > x, x, y);
            break;
          case 4:
            y = number - x;
            x = x + y;
            break;
          default:
            x = kBinary[static_cast<std::size_t>(choice / 7) % std::size(kBinary)](x, in[other]);
        }
        if (wobble != 0) x = x * (1 + (i % 2 ? wobble : -wobble));
      }
      if (choices[0] % 2) return {x + 1.0, tn::abs(x)};
      return {x + 1.0};
    };
    const auto f = [&](const Tensors& in) { return wobbling(in, 0); };
    // Sums may cancel: an error is measured against the largest magnitude that occurs. And steps
    // may stretch the errors of those before, as the sine of a square does: against that, too.
    double scale = 1;
    const auto reach = [&](const Tensor& error) {
      const Tensor finite = tn::where(tn::isfinite(error), tn::abs(error.astype(tn::f64)), 0.0);
      scale = std::max(scale, tn::max(finite).item<double>());
    };
    for (const Tensor& out : f(inputs)) reach(out);
    if (!exact) {
      Tensors precise;
      for (const Tensor& in : inputs) precise.push_back(in.astype(tn::f64));
      constexpr double kWobble = 0x1p-24;
      const Tensors still = f(precise), off = wobbling(precise, kWobble);
      for (std::size_t i = 0; i < still.size(); ++i) reach((off[i] - still[i]) / kWobble);
    }
    // What has more operators is declined, as DeclinesTooManyOperators has it.
    const tn::Graph graph = graph_of(f, inputs);
    if (tn::operator_count(graph, whole_group(graph).nodes) > tn::cpu::kMostOperators) continue;
    const GroupRun run = run_group("pointwise", f, inputs, pick(4) ? &random_engine() : nullptr);
    expect_close(run,
                 exact ? 0
                       : 64 * (dtype == tn::f32   ? 0x1p-23
                               : dtype == tn::f16 ? 0x1p-11
                                                  : 0x1p-8),
                 scale);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Pointwise, ConvertsTypes) {
  const tn::DType from[] = {tn::boolean, tn::u8,  tn::i8,   tn::i16, tn::i32,
                            tn::i64,     tn::f16, tn::bf16, tn::f32};
  for (int round = 0; round < 400; ++round) {
    const tn::DType a = from[pick(9)], b = from[pick(9)];
    if (a == b || (!tn::is_floating(a) && !tn::is_floating(b) && b != tn::boolean)) continue;
    const Shape shape = any_shape();
    Tensor x = any_tensor(shape, a);
    if (a == tn::f32) x = x * 3e4;
    if (a == tn::i64) x = x * 1234567891;
    expect_close(run_group(
                     "pointwise", [&](const Tensors& in) -> Tensors { return {in[0].astype(b)}; },
                     {x}, &random_engine()),
                 0);
    if (::testing::Test::HasFailure()) FAIL() << a << " to " << b;
  }
}

// Between integers a value that the new type has not wraps around, which a float would not do.
TEST(Pointwise, IntegersWrapAround) {
  const tn::DType integers[] = {tn::u8, tn::i8, tn::i16, tn::i32, tn::i64};
  const Tensor x = tn::arange(-150, 300);
  for (const tn::DType a : integers)
    for (const tn::DType b : integers) {
      if (a == b) continue;
      const auto f = [b](const Tensors& in) -> Tensors { return {in[0].astype(b)}; };
      const Tensors inputs{x.astype(a)};
      const bool fits = tn::item_size(a) < tn::item_size(b) && (a == tn::u8 || b != tn::u8);
      const bool is_small = tn::item_size(a) <= 2;  // a float holds no larger ones
      EXPECT_EQ(accepts("pointwise", f, inputs), fits && is_small) << a << " to " << b;
      if (fits && is_small) expect_close(run_group("pointwise", f, inputs, &random_engine()), 0);
    }
  const Tensor wrapped = tn::compile(
      [](const Tensors& in) -> Tensors { return {in[0].copy().astype(tn::u8).astype(tn::f32)}; },
      {x.astype(tn::i8)})({x.astype(tn::i8)})[0];
  EXPECT_EQ(wrapped.to_vector<float>(), x.astype(tn::i8).astype(tn::u8).to_vector<float>());
}

TEST(Pointwise, SmallIntegersAndTruthValues) {
  for (int round = 0; round < 200; ++round) {
    const tn::DType types[] = {tn::boolean, tn::u8, tn::i8, tn::i16};
    const tn::DType dtype = types[pick(4)];
    const Shape shape = any_shape();
    const Tensors inputs{any_tensor(shape, dtype), any_tensor(broadcastable(shape), dtype),
                         any_tensor(broadcastable(shape), tn::boolean)};
    expect_close(run_group(
                     "pointwise",
                     [&](const Tensors& in) -> Tensors {
                       const Tensor less = in[0] <= in[1], other = in[0] != in[1];
                       return {tn::where(less | !other, in[0], tn::maximum(in[0], in[1])),
                               tn::logical_xor(less & other, in[2])};
                     },
                     inputs, &random_engine()),
                 0);
    if (::testing::Test::HasFailure()) FAIL() << dtype;
  }
}

// Of an image whose channels lie last: rows are lines of channels, and the numbers are read once.
TEST(Pointwise, NumbersOfGroupsOfChannels) {
  for (int round = 0; round < 30; ++round) {
    const std::int64_t batch = 1 + pick(2), groups = 2 + pick(20), each = 1 + pick(6);
    const std::int64_t h = 1 + pick(30), w = 1 + pick(30);
    expect_close(run_group(
                     "pointwise",
                     [&](const Tensors& in) -> Tensors {
                       const Tensor x = in[0].transpose({0, 3, 1, 2});
                       return {(x.reshape({batch, groups, each, h, w}) - in[1]) * in[2]};
                     },
                     {normal({batch, h, w, groups * each}), normal({batch, groups, 1, 1, 1}),
                      normal({1, groups, each, 1, 1})},
                     nullptr),
                 0);
    if (::testing::Test::HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Pointwise, SpecialValues) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> special = {0.0,       -0.0,  1,    -1,    nan,  infinity,
                                       -infinity, 1e-40, 3e38, -3e38, 88.9, -104.5};
  std::vector<float> a, b;
  for (const double x : special)
    for (const double y : special)
      a.push_back(static_cast<float>(x)), b.push_back(static_cast<float>(y));
  const Tensors inputs{tn::array(a), tn::array(b)};
  const auto check = [&](const tn::TensorFunction& f, double bound) {
    expect_close(run_group("pointwise", f, inputs, nullptr), bound);
  };
  for (const auto f : kBinary)
    check([&](const Tensors& in) -> Tensors { return {f(in[0], in[1])}; }, 0);
  for (const auto f : {tn::divide, tn::remainder, tn::floor_divide, tn::equal, tn::not_equal,
                       tn::less, tn::greater_equal})
    check([&](const Tensors& in) -> Tensors { return {f(in[0], in[1])}; }, 0);
  for (const auto f : {tn::sqrt, tn::rsqrt, tn::reciprocal, tn::isnan, tn::isfinite,
                       tn::logical_not, tn::floor, tn::round})
    check([&](const Tensors& in) -> Tensors { return {f(in[0])}; }, 0);
  // The reference's own float functions are off by an ulp or so too.
  for (const auto f : {tn::exp, tn::expm1, tn::log, tn::log1p, tn::tanh, tn::erf})
    check([&](const Tensors& in) -> Tensors { return {f(in[0])}; }, 6 * 0x1p-23);
  check([&](const Tensors& in) -> Tensors { return {tn::power(tn::abs(in[0]), 2.5)}; },
        6 * 0x1p-23);
}

// As one operator on f32, rounded once: between a composed operator's parts there is no rounding.
TEST(Pointwise, ComposedOperatorsRoundOnce) {
  tn::Generator random(3);
  for (const tn::DType dtype : {tn::f32, tn::f16, tn::bf16}) {
    const Tensors inputs{random.normal({7, 65}).astype(dtype) * 4,
                         random.normal({65}).astype(dtype)};
    expect_close(
        run_group(
            "pointwise", [](const Tensors& in) -> Tensors { return {tn::softplus(in[0] + in[1])}; },
            inputs, &random_engine()),
        8 * 0x1p-23);
  }
}

// A group has room for so many operators, and a composed one counts as its parts.
TEST(Pointwise, DeclinesTooManyOperators) {
  const auto times = [](int n) {
    return [n](const Tensors& in) -> Tensors {
      Tensor x = in[0];
      for (int i = 0; i < n; ++i) x = tn::softplus(x);
      return {x};
    };
  };
  const Tensors inputs{tn::linspace(-3, 3, 10).astype(tn::f32)};
  EXPECT_TRUE(accepts("pointwise", times(2), inputs));   // 12 operators
  EXPECT_FALSE(accepts("pointwise", times(3), inputs));  // 18
}

TEST(Pointwise, Declines) {
  tn::Generator random(1);
  const Tensor x = random.normal({4, 5}), y = random.normal({5});
  const auto declines = [](const tn::TensorFunction& f, const Tensors& in) {
    return !accepts("pointwise", f, in);
  };
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {x.astype(tn::i64)}));
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {x.astype(tn::f64)}));
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + in[0]}; }, {x.astype(tn::u8)}));
  EXPECT_TRUE(declines([](const Tensors& in) -> Tensors { return {tn::sum(in[0] + 1, -1)}; }, {x}));
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + (in[1] * 2.0)}; }, {x, y}));
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {(in[0] + 1).transpose() * 2}; }, {x}));
  EXPECT_TRUE(
      declines([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, {tn::zeros({0, 3})}));
  // Rounded to integers in between: the program would go on with the fraction.
  EXPECT_TRUE(declines(
      [](const Tensors& in) -> Tensors { return {in[0].astype(tn::i64).astype(tn::f32) * 2}; },
      {x}));
  EXPECT_FALSE(
      declines([](const Tensors& in) -> Tensors { return {(in[0] + 1).expand_dims(0) * 2}; }, {x}));
}

}  // namespace

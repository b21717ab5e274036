// Reductions against plain float64 loops, and NumPy's corner cases.
#include <limits>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::error_of;
using check::expect_near;
using check::expect_rounded;
using check::kAllTypes;
using check::kInfinity;
using check::kNan;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

// f of the elements that share each place of the result, in row-major order.
template <class F>
Numbers reference(const Tensor& x, const Dims& axes, F f) {
  Shape kept;
  for (int axis = 0; axis < x.rank(); ++axis)
    kept.push_back(axes.contains(axis) ? 1 : x.shape(axis));
  std::vector<Numbers> groups(static_cast<std::size_t>(num_elements(kept)));
  const Numbers values = x.to_vector<double>();
  for (std::size_t flat = 0; flat < values.size(); ++flat) {
    std::int64_t rest = static_cast<std::int64_t>(flat), place = 0, step = 1;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      const std::int64_t index = rest % x.shape(axis);
      rest /= x.shape(axis);
      if (kept[axis] != 1) place += index * step;
      step *= kept[axis];
    }
    groups[static_cast<std::size_t>(place)].push_back(values[flat]);
  }
  Numbers result;
  for (const Numbers& group : groups) result.push_back(static_cast<double>(f(group)));
  return result;
}

using Exact = long double;
Exact sum_of(const Numbers& v) {
  Exact total = 0;
  for (const double x : v) total += x;
  return total;
}
Exact prod_of(const Numbers& v) {
  Exact total = 1;
  for (const double x : v) total *= x;
  return total;
}
Exact mean_of(const Numbers& v) { return sum_of(v) / static_cast<Exact>(v.size()); }
Exact var_of(const Numbers& v) {
  Exact total = 0;
  for (const double x : v) total += (x - mean_of(v)) * (x - mean_of(v));
  return total / static_cast<Exact>(v.size());
}
Exact max_of(const Numbers& v) { return *std::max_element(v.begin(), v.end()); }
Exact min_of(const Numbers& v) { return *std::min_element(v.begin(), v.end()); }
Exact any_of(const Numbers& v) {
  return std::any_of(v.begin(), v.end(), [](double x) { return x != 0; });
}
Exact all_of(const Numbers& v) {
  return std::all_of(v.begin(), v.end(), [](double x) { return x != 0; });
}
Exact argmax_of(const Numbers& v) {
  return Exact(std::max_element(v.begin(), v.end()) - v.begin());
}
Exact argmin_of(const Numbers& v) {
  return Exact(std::min_element(v.begin(), v.end()) - v.begin());
}

struct Reduction {
  Tensor (*operation)(const Tensor&, const Axes&, bool);
  Exact (*reference)(const Numbers&);
  bool exact;  // picks an element or an index
};
const Reduction kReductions[] = {
    {sum, sum_of, false},
    {mean, mean_of, false},
    {prod, prod_of, false},
    {max, max_of, true},
    {min, min_of, true},
    {any, any_of, true},
    {all, all_of, true},
    {argmax, argmax_of, true},
    {argmin, argmin_of, true},
    {[](const Tensor& x, const Axes& axis, bool keep) { return var(x, axis, keep); }, var_of,
     false},
    {[](const Tensor& x, const Axes& axis, bool keep) { return std(x, axis, keep); },
     [](const Numbers& v) { return std::sqrt(var_of(v)); }, false},
};

TEST(Reduce, AgreesWithLoopsInEveryLayoutTypeAndAxis) {
  const std::vector<Dims> axes = {{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}, {}};
  for (const DType dtype : kAllTypes) {
    const Tensor numbers = random_tensor({3, 5, 4}, dtype);
    for (const Reduction& function : kReductions) {
      // 60 factors below 3 stay within 64 bits.
      const bool small = function.reference == prod_of && kind_of(dtype) == Kind::integer;
      const Tensor x = small ? numbers % 3 : numbers;
      for (const Dims& axis : axes) {
        const Numbers expected = reference(x, axis, function.reference);
        for (const Tensor& view : layouts(x)) {
          const Tensor got = function.operation(view, axis, false);
          // Integers are exact in 64 bits unless they are means. The others: 60 terms at most in
          // double, one rounding to the type, and one to f32 before it for std of 16-bit types.
          double largest = 1;
          for (const double value : expected) largest = std::max(largest, std::fabs(value));
          const double wide = item_size(dtype) == 2 ? check::epsilon(f32) : 0;
          if (function.exact || got.dtype() == i64)
            expect_near(got, expected, 0);
          else
            expect_rounded(got, expected, (60 * check::epsilon(f64) + wide) * largest);
          const Tensor kept = function.operation(view, axis, true);
          EXPECT_EQ(kept.rank(), x.rank());
          EXPECT_EQ(kept.reshape(got.shape()).to_vector<double>(), got.to_vector<double>());
        }
      }
    }
  }
}

TEST(Reduce, NegativeAxesAndShapes) {
  const Tensor x = random_tensor({2, 3, 4});
  EXPECT_EQ(sum(x, -1).shape(), (Shape{2, 3}));
  EXPECT_EQ(sum(x, {-1, 0}).shape(), (Shape{3}));
  EXPECT_EQ(sum(x, {-1, 0}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x).shape(), Shape{});
  EXPECT_EQ(sum(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(argmax(x, {}, true).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(argmax(x, -2).shape(), (Shape{2, 4}));
}

TEST(Reduce, TypesFollowNumpy) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = ones({4}, dtype);
    const bool floating = is_floating(dtype);
    for (const auto& result : {sum(x), prod(x)}) EXPECT_EQ(result.dtype(), floating ? dtype : i64);
    for (const auto& result : {mean(x), var(x), std(x)})
      EXPECT_EQ(result.dtype(), floating ? dtype : f64);
    for (const auto& result : {max(x), min(x)}) EXPECT_EQ(result.dtype(), dtype);
    for (const auto& result : {any(x), all(x)}) EXPECT_EQ(result.dtype(), boolean);
    for (const auto& result : {argmax(x), argmin(x)}) EXPECT_EQ(result.dtype(), i64);
    EXPECT_EQ(sum(x).item<int>(), 4);
  }
}

TEST(Reduce, ZeroDimensional) {
  const Tensor x = array({3.0}).reshape({});
  EXPECT_EQ(sum(x).item(), 3);
  EXPECT_EQ(max(x, {}, true).shape(), Shape{});
  EXPECT_EQ(var(x).item(), 0);
  EXPECT_EQ(argmax(x).item<int>(), 0);
  EXPECT_EQ(sum(2).item<int>(), 2);
  EXPECT_FALSE(sum(2).is_weak());
}

TEST(Reduce, Empty) {
  const Tensor nothing = zeros({0, 3});
  expect_near(sum(nothing, 0), {0, 0, 0}, 0);
  expect_near(prod(nothing, 0), {1, 1, 1}, 0);
  expect_near(mean(nothing, 0), {kNan, kNan, kNan}, 0);
  expect_near(var(nothing, 0), {kNan, kNan, kNan}, 0);
  expect_near(std(nothing), {kNan}, 0);
  EXPECT_EQ(any(nothing).item<int>(), 0);
  EXPECT_EQ(all(nothing).item<int>(), 1);
  EXPECT_EQ(sum(zeros({0}, i32)).item<int>(), 0);
  // Nothing is asked for, so nothing is missing.
  EXPECT_EQ(max(nothing, 1).shape(), (Shape{0}));
  EXPECT_EQ(argmin(nothing, 1).shape(), (Shape{0}));
}

TEST(Reduce, NanWins) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = array({1.0, kNan, kInfinity, -kInfinity, kNan, 2.0}).astype(dtype);
    for (const Tensor& view : layouts(x)) {
      expect_near(max(view), {kNan}, 0);
      expect_near(min(view), {kNan}, 0);
      expect_near(sum(view), {kNan}, 0);
      EXPECT_EQ(argmax(view).item<int>(), 1);
      EXPECT_EQ(argmin(view).item<int>(), 1);
      EXPECT_TRUE(any(view).item<bool>());
      EXPECT_TRUE(all(view).item<bool>());
    }
    // Along an axis that is not the innermost one.
    const Tensor rows = array({0.0, kNan, 5.0, 1.0, 7.0, kNan}).reshape({2, 3}).astype(dtype);
    expect_near(max(rows, 0), {1, kNan, kNan}, 0);
    expect_near(min(rows, 0), {0, kNan, kNan}, 0);
    expect_near(argmax(rows, 0), {1, 0, 1}, 0);
  }
}

TEST(Reduce, InfinitiesAndExtremes) {
  expect_near(max(full({3}, -kInfinity)), {-kInfinity}, 0);
  expect_near(min(full({3}, kInfinity)), {kInfinity}, 0);
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(max(full({2}, kLowest)).item<std::int64_t>(), kLowest);
  EXPECT_EQ(sum(full({3}, kLowest)).item<std::int64_t>(), kLowest);  // wraps around
  EXPECT_EQ(prod(full({2}, kLowest)).item<std::int64_t>(), 0);
  EXPECT_EQ(sum(full({1000}, 255, u8)).item<int>(), 255000);
  EXPECT_EQ(max(array({1, 7, 7})).item<int>(), 7);
  EXPECT_EQ(argmax(array({1, 7, 7})).item<int>(), 1);
  EXPECT_EQ(argmin(array({3, 0, 0})).item<int>(), 1);
}

TEST(Reduce, AccumulatesWiderThanTheType) {
  // In f16 itself 2048 + 1 is 2048; the mean and deviation would overflow.
  EXPECT_EQ(sum(ones({4000}, f16)).item(), 4000);
  EXPECT_EQ(mean(full({4000}, 600, f16)).item(), 600);
  EXPECT_EQ(std(array({-40000.0, 40000.0}).astype(f16)).item(), 40000);
  EXPECT_EQ(sum(ones({1000}, bf16)).item(), 1000);
  // In f32 itself 2^24 + 1 is 2^24.
  EXPECT_EQ(sum(ones({3, 1 << 24}), {0, 1}).item(), 3 << 24);
  EXPECT_EQ(sum(array({3e38f, 3e38f, -3e38f})).item<float>(), 3e38f);
}

TEST(Reduce, PairwiseSumOfDoubles) {
  // One after the other, 10^6 tenths are off by 1.3e-11 of the sum; in pairs by less than
  // log2(10^6) eps.
  const Tensor tenths = full({1000000}, 0.1);
  EXPECT_NEAR(sum(tenths).item(), 1e5, 20 * 0x1p-52 * 1e5);
  EXPECT_NEAR(sum(flip(tenths)).item(), 1e5, 20 * 0x1p-52 * 1e5);
}

TEST(Reduce, VarianceFarFromZero) {
  // Steps of 2^-10 around 10^4 are exact in f32: a variance of about 10^-6 that E[x^2] - E[x]^2
  // cannot see in f32.
  const Tensor steps = check::random().randint(-1, 2, {4, 501});
  const Tensor x = (steps.astype(f64) / 1024 + 10000).astype(f32);
  Numbers expected = reference(steps, {1}, var_of);
  for (double& value : expected) value /= 1024 * 1024;
  for (const Tensor& view : layouts(x))
    expect_near(var(view, 1), expected, 2 * check::epsilon(f32));
}

TEST(Reduce, DegreesOfFreedom) {
  const Tensor x = array({1.0, 2.0, 4.0});
  EXPECT_NEAR(var(x, {}, false, 1).item(), 7.0 / 3, 1e-15);
  EXPECT_NEAR(std(x, {}, false, 1).item(), std::sqrt(7.0 / 3), 1e-15);
  EXPECT_EQ(var(x, {}, false, 3).item(), kInfinity);
  EXPECT_EQ(var(x, {}, false, 4).item(), kInfinity);  // n - ddof counts as 0
  expect_near(var(array({1.0}), {}, false, 1), {kNan}, 0);
}

TEST(Reduce, BroadcastInput) {
  const Tensor x = broadcast_to(array({1.0, 2.0, 3.0}).reshape({3, 1}), {3, 100});
  expect_near(sum(x, 1), {100, 200, 300}, 0);
  expect_near(sum(x, 0), Numbers(100, 6.0), 0);
  EXPECT_EQ(sum(x).item(), 600);
  EXPECT_EQ(argmax(x).item<int>(), 200);
}

TEST(Reduce, Errors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(
      error_of([&] {
        max(zeros({0, 3}), 0);
      }),
      "max: the shape (0, 3) has no elements along the axes (0,): there is nothing to choose from");
  EXPECT_EQ(
      error_of([&] { min(zeros({0})); }),
      "min: the shape (0,) has no elements along the axes (0,): there is nothing to choose from");
  EXPECT_EQ(error_of([&] {
              argmax(zeros({2, 0}), 1);
            }),
            "argmax: the shape (2, 0) has no elements along the axes (1,): there is nothing to "
            "choose from");
  EXPECT_EQ(error_of([&] {
              argmin(zeros({2, 0}));
            }),
            "argmin: the shape (2, 0) has no elements along the axes (0, 1): there is nothing to "
            "choose from");
  EXPECT_EQ(error_of([&] { sum(x, {0, -2}); }), "sum: axis 0 is named twice in (0, -2)");
  EXPECT_EQ(error_of([&] { var(x, 2); }).substr(0, 5), "var: ");
  EXPECT_EQ(error_of([&] { mean(x, -3); }).substr(0, 6), "mean: ");
  EXPECT_EQ(error_of([&] { sum(Tensor()); }),
            "tensor: this tensor is undefined (default constructed): give it a value first");
}

}  // namespace
}  // namespace tensor

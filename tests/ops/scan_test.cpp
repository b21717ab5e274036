// cumsum, sort, argsort and topk: against plain loops, and their rules for NaN, ties and types.
#include <algorithm>
#include <numeric>

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

// Calls f on the numbers along `axis` of x, for each line, and returns them in x's row-major order.
template <class F>
Numbers by_lines(const Tensor& x, int axis, F f) {
  Numbers values = x.to_vector<double>();
  std::int64_t inner = 1, outer = 1;
  for (int i = 0; i < x.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : x.shape(i);
  const std::int64_t extent = x.shape(axis);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < inner; ++i) {
      Numbers line;
      const auto at = [&](std::int64_t k) {
        return static_cast<std::size_t>((o * extent + k) * inner + i);
      };
      for (std::int64_t k = 0; k < extent; ++k) line.push_back(values[at(k)]);
      f(line);
      for (std::int64_t k = 0; k < extent; ++k) values[at(k)] = line[static_cast<std::size_t>(k)];
    }
  return values;
}

Numbers stable_order(const Numbers& line) {
  Numbers order(line.size());
  std::iota(order.begin(), order.end(), 0.0);
  std::stable_sort(order.begin(), order.end(), [&](double i, double j) {
    return line[static_cast<std::size_t>(i)] < line[static_cast<std::size_t>(j)];
  });
  return order;
}

TEST(Scan, AgreesWithLoopsInEveryLayoutTypeAndAxis) {
  for (const DType dtype : kAllTypes) {
    const Tensor x = random_tensor({4, 7, 3}, dtype);
    for (int axis = 0; axis < 3; ++axis) {
      double largest = 0;  // of the partial sums, which may cancel
      const Numbers sums = by_lines(x, axis, [&](Numbers& line) {
        std::partial_sum(line.begin(), line.end(), line.begin());
        for (const double sum : line) largest = std::max(largest, std::fabs(sum));
      });
      const Numbers sorted =
          by_lines(x, axis, [](Numbers& line) { std::sort(line.begin(), line.end()); });
      const Numbers order = by_lines(x, axis, [](Numbers& line) { line = stable_order(line); });
      for (const Tensor& view : layouts(x)) {
        const Tensor total = cumsum(view, axis - 3);
        EXPECT_EQ(total.dtype(), is_floating(dtype) ? dtype : i64);
        if (is_floating(dtype))
          expect_rounded(total, sums, 7 * check::epsilon(f64) * largest);
        else
          expect_near(total, sums, 0);
        EXPECT_EQ(sort(view, axis).dtype(), dtype);
        expect_near(sort(view, axis), sorted, 0);
        EXPECT_EQ(argsort(view, axis).dtype(), i64);
        expect_near(argsort(view, axis), order, 0);
      }
    }
  }
}

TEST(Scan, CumsumOfIntegersWrapsAround) {
  const std::int64_t huge = std::int64_t(1) << 62;
  EXPECT_EQ(cumsum(array({huge, huge, huge}), 0).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{huge, -2 * huge, -huge}));
  EXPECT_EQ(cumsum(full({300}, 200, u8), 0).item<int>(299), 60000);
}

TEST(Scan, CumsumByNameFlattensWithoutAnAxis) {
  const Tensor x = array({1, 2, 3, 4}).reshape({2, 2});
  EXPECT_EQ(call("cumsum", {x}).at(0).to_vector<int>(), (std::vector<int>{1, 3, 6, 10}));
  EXPECT_EQ(call("cumsum", {x}, {{"axis", 0}}).at(0).to_vector<int>(),
            (std::vector<int>{1, 2, 4, 6}));
}

TEST(Scan, CumsumCarriesNan) {
  expect_near(cumsum(array({1.0, kNan, 2.0}), 0), {1, kNan, kNan}, 0);
}

TEST(Sort, NanSortsLastAndTiesKeepTheirOrder) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor x = array({kNan, 2.0, -kInfinity, kNan, kInfinity, 2.0}).astype(dtype);
    for (const Tensor& view : layouts(x)) {
      expect_near(sort(view), {-kInfinity, 2, 2, kInfinity, kNan, kNan}, 0);
      expect_near(argsort(view), {2, 1, 5, 4, 0, 3}, 0);
    }
  }
  EXPECT_TRUE(std::signbit(sort(array({-0.0, 0.0})).item(0)));
  EXPECT_FALSE(std::signbit(sort(array({0.0, -0.0})).item(0)));
}

TEST(Sort, WholeRangeOfIntegers) {
  // Neighbours at the ends of int64, which a double could not tell apart.
  const std::int64_t top = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(sort(array({top, top - 1, -top})).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{-top, top - 1, top}));
  EXPECT_EQ(argsort(array({top, top - 1, -top})).to_vector<int>(), (std::vector<int>{2, 1, 0}));
}

TEST(Sort, Empty) {
  EXPECT_EQ(sort(zeros({0})).shape(), (Shape{0}));
  EXPECT_EQ(argsort(zeros({3, 0, 2}), 1).shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(cumsum(zeros({0, 2}), 0).shape(), (Shape{0, 2}));
}

TEST(Topk, TheLargestInDescendingOrder) {
  const Tensor x = array({3, 9, 1, 9, 5}).astype(f32);
  const auto [values, indices] = topk(x, 3);
  expect_near(values, {9, 9, 5}, 0);
  EXPECT_EQ(indices.to_vector<int>(), (std::vector<int>{1, 3, 4}));
  const Tensor random = random_tensor({4, 6, 5});
  for (int axis = 0; axis < 3; ++axis) {
    const auto [top, places] = topk(random, 4, axis);
    const Tensor sorted = flip(sort(random, axis), axis);
    Dims extent = random.shape();
    extent[axis] = 4;
    EXPECT_EQ(top.shape(), extent);
    EXPECT_EQ(places.shape(), extent);
    std::vector<Index> first{all_of_axis, all_of_axis, all_of_axis};
    first[static_cast<std::size_t>(axis)] = slice(0, 4);
    EXPECT_EQ(top.to_vector<float>(), get_index(sorted, first).to_vector<float>());
  }
}

// Of equal elements those that come first, of lines long and short.
TEST(Topk, IsTheBeginningOfTheWholeOrder) {
  for (const std::int64_t length : {1, 7, 300, 5000}) {
    const Tensor x = floor(random_tensor({2, length}) * 3);
    for (const bool largest : {false, true})
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, length / 2, length}) {
        const Tensor order = argsort(largest ? -x : x, 1);
        const auto [values, indices] = topk(x, k, 1, largest);
        EXPECT_TRUE(array_equal(indices, order(all_of_axis, slice(0, k))));
        EXPECT_TRUE(array_equal(values, take_along_axis(x, indices, 1)));
      }
  }
}

TEST(Topk, NanCountsAsTheLargest) {
  const auto [values, indices] = topk(array({1.0, kNan, kInfinity, kNan}), 3);
  expect_near(values, {kNan, kNan, kInfinity}, 0);
  EXPECT_EQ(indices.to_vector<int>(), (std::vector<int>{1, 3, 2}));
}

TEST(Topk, NoneAndAll) {
  EXPECT_EQ(topk(zeros({2, 5}), 0).first.shape(), (Shape{2, 0}));
  EXPECT_EQ(topk(zeros({2, 5}), 5, 1).second.shape(), (Shape{2, 5}));
}

TEST(Scan, Errors) {
  EXPECT_EQ(error_of([] {
              topk(zeros({2, 5}), 6);
            }),
            "topk: got k = 6 for the 5 elements along axis 1 of the shape (2, 5)");
  EXPECT_EQ(error_of([] {
              topk(zeros({2, 5}), -1, 0);
            }),
            "topk: got k = -1 for the 2 elements along axis 0 of the shape (2, 5)");
  EXPECT_EQ(error_of([] { sort(1.0); }).substr(0, 6), "sort: ");
  EXPECT_EQ(error_of([] { argsort(zeros({2}), 1); }).substr(0, 9), "argsort: ");
  EXPECT_EQ(error_of([] { cumsum(zeros({2}), -2); }).substr(0, 8), "cumsum: ");
}

// A line may be long where there is none.
TEST(Scan, OfNoElements) {
  const Tensor none = zeros({0, std::int64_t{1} << 45});
  for (const Tensor& result : {cumsum(none, 1), sort(none), argsort(none), softmax(none)})
    EXPECT_EQ(result.shape(), none.shape());
}

}  // namespace
}  // namespace tensor

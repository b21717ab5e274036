// max_pool2d and avg_pool2d against plain loops over the padded image.
#include <random>

#include "src/ops/op.h"
#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::epsilon;
using check::error_of;
using check::expect_near;
using check::kInfinity;
using check::kNan;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

struct PoolGeometry {
  Pair image, kernel, stride, padding;
};

// fold(numbers of the window, `outside` for the padding) of every window.
template <class Fold>
Numbers reference(const Tensor& x, const PoolGeometry& g, double outside, const Fold& fold) {
  const Numbers values = x.to_vector<double>();
  const std::int64_t images = x.shape(0) * x.shape(1);
  Numbers result;
  for (std::int64_t image = 0; image < images; ++image)
    for (std::int64_t top = -g.padding.h; top + g.kernel.h <= g.image.h + g.padding.h;
         top += g.stride.h)
      for (std::int64_t left = -g.padding.w; left + g.kernel.w <= g.image.w + g.padding.w;
           left += g.stride.w) {
        Numbers window;
        for (std::int64_t y = top; y < top + g.kernel.h; ++y)
          for (std::int64_t column = left; column < left + g.kernel.w; ++column) {
            const bool inside = y >= 0 && y < g.image.h && column >= 0 && column < g.image.w;
            const std::int64_t at = (image * g.image.h + y) * g.image.w + column;
            window.push_back(inside ? values[static_cast<std::size_t>(at)] : outside);
          }
        result.push_back(fold(window));
      }
  return result;
}

double max_of_window(const Numbers& window) {
  double best = -kInfinity;
  for (const double value : window)
    if (std::isnan(value) || std::isnan(best) || value > best)
      best = std::isnan(best) ? best : value;
  return best;
}
double mean_of_window(const Numbers& window) {
  double sum = 0;
  for (const double value : window) sum += value;
  return sum / static_cast<double>(window.size());
}

std::vector<PoolGeometry> geometries() {
  std::vector<PoolGeometry> result = {{{13, 10}, 3, 2, 1},
                                      {{8, 6}, 2, 2, 0},
                                      {{5, 5}, 5, 5, 2},
                                      {{1, 1}, 1, 1, 0},
                                      {{1, 2}, 2, 1, 1}};
  std::mt19937_64 bits(
      static_cast<std::uint64_t>(check::random().randint(0, 1 << 30, {}).item<int>()));
  const auto in = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(bits);
  };
  for (int i = 0; i < 30; ++i) {
    const Pair kernel{in(1, 5), in(1, 5)};
    const Pair padding{in(0, kernel.h / 2), in(0, kernel.w / 2)};
    const Pair image{std::max<std::int64_t>(kernel.h - 2 * padding.h, 1) + in(0, 7),
                     std::max<std::int64_t>(kernel.w - 2 * padding.w, 1) + in(0, 7)};
    result.push_back({image, kernel, {in(1, 4), in(1, 4)}, padding});
  }
  return result;
}

TEST(MaxPool2d, EveryTypeAndLayout) {
  for (const PoolGeometry& g : geometries())
    for (const DType dtype : {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
      const Tensor x = random_tensor({2, 3, g.image.h, g.image.w}, dtype);
      const Numbers expected = reference(x, g, -kInfinity, max_of_window);
      for (const Tensor& view : layouts(x)) {
        const Tensor got = max_pool2d(view, g.kernel, g.stride, g.padding);
        ASSERT_EQ(got.dtype(), dtype);
        ASSERT_EQ(got.to_vector<double>(), expected);
      }
    }
}

TEST(AvgPool2d, EveryTypeAndLayout) {
  for (const PoolGeometry& g : geometries())
    for (const DType dtype : {f16, bf16, f32, f64}) {
      const Tensor x = random_tensor({2, 3, g.image.h, g.image.w}, dtype);
      const Numbers expected = reference(x, g, 0, mean_of_window);
      for (const Tensor& view : layouts(x)) {
        const Tensor got = avg_pool2d(view, g.kernel, g.stride, g.padding);
        ASSERT_EQ(got.dtype(), dtype);
        // Both sums are double and in one order; what differs is the rounding to the type, which
        // is absolute below 2^-14, where f16 is subnormal.
        expect_near(got, expected, epsilon(dtype), 0x1p-14);
      }
    }
}

TEST(Pool2d, ShapesAndDefaults) {
  const Tensor x = random_tensor({1, 1, 7, 9});
  EXPECT_EQ(max_pool2d(x, {2, 3}).shape(), (Shape{1, 1, 3, 3}));
  EXPECT_EQ(avg_pool2d(x, {2, 3}, {1, 2}).shape(), (Shape{1, 1, 6, 4}));
  EXPECT_EQ(max_pool2d(zeros({0, 3, 4, 4}), 2).shape(), (Shape{0, 3, 2, 2}));
  EXPECT_EQ(avg_pool2d(zeros({2, 0, 4, 4}), 2).shape(), (Shape{2, 0, 2, 2}));
  const Tensor wide = broadcast_to(array({1.f, 2.f, 3.f, 4.f}), {1, 2, 2, 4});
  EXPECT_EQ(max_pool2d(wide, 2).to_vector<int>(), (std::vector<int>{2, 4, 2, 4}));
}

TEST(MaxPool2d, NanWinsAndInfinitiesCount) {
  Tensor x = array({-kInfinity, -kInfinity, 1., kNan, kInfinity, 2., 3., 4.}).reshape({1, 1, 1, 8});
  expect_near(max_pool2d(x, {1, 2}), {-kInfinity, kNan, kInfinity, 4}, 0);
  // NaN at each place of a window.
  for (int i = 0; i < 4; ++i) {
    Tensor window = ones({1, 1, 2, 2}, f16);
    window.reshape({4})(i) = kNan;
    EXPECT_TRUE(std::isnan(max_pool2d(window, 2).item()));
  }
  EXPECT_EQ(max_pool2d(full({1, 1, 1, 1}, -128, i8), 1).item<int>(), -128);
  EXPECT_EQ(max_pool2d(full({1, 1, 2, 2}, -7, i32), 2, 1, 1).to_vector<int>(),
            std::vector<int>(9, -7));
}

TEST(Pool2d, Errors) {
  const Tensor x = zeros({1, 2, 5, 6});
  EXPECT_EQ(
      error_of([&] { max_pool2d(x(0), 2); }),
      "max_pool2d: got an input of the shape (2, 5, 6), need (batch, channels, height, width)");
  EXPECT_EQ(error_of([&] { max_pool2d(x, 0, 1); }),
            "max_pool2d: got 0 in the kernel_size (0, 0), need at least 1 and less than 2^31");
  EXPECT_EQ(error_of([&] {
              avg_pool2d(x, 2, {0, 1});
            }),
            "avg_pool2d: got 0 in the stride (0, 1), need at least 1 and less than 2^31");
  EXPECT_EQ(error_of([&] { avg_pool2d(x, 2, 1, -1); }),
            "avg_pool2d: got -1 in the padding (-1, -1), need at least 0 and less than 2^31");
  EXPECT_EQ(error_of([&] {
              max_pool2d(x, {4, 3}, 1, 2);
            }),
            "max_pool2d: got the padding 2 x 2 for the kernel 4 x 3, need at most half of it");
  EXPECT_EQ(error_of([&] {
              max_pool2d(x, {6, 2});
            }),
            "max_pool2d: the kernel covers 6 x 2 elements, but the padded input has 5 x 6");
  EXPECT_EQ(error_of([&] {
              max_pool2d(zeros({1, 2, 0, 6}), 2, 1, 1);
            }),
            "max_pool2d: got an input of the shape (1, 2, 0, 6), need at least 1 x 1");
  EXPECT_EQ(error_of([&] {
              max_pool2d(zeros({0, 1, std::int64_t{1} << 31, 1}), 2);
            }),
            "max_pool2d: got an input of the shape (0, 1, 2147483648, 1), need a height and width "
            "less than 2^31");
  EXPECT_EQ(error_of([&] { avg_pool2d(x.astype(i64), 2); }),
            "avg_pool2d: got a tensor of i64, need a floating type: convert it with astype(f32)");
  EXPECT_EQ(error_of([&] {
              apply_op(Op::max_pool2d, {x}, {{"kernel_size", 2}, {"stride", 1}, {"padding", 0}});
            }),
            "max_pool2d: got 1 numbers for the kernel_size, need height and width");
}

}  // namespace
}  // namespace tensor

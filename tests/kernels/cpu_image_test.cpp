// The image family against the reference: pooling and resizing on images of any size and layout.
#include <gtest/gtest.h>

#include "tests/kernels/group_testing.h"

namespace tn = tensor;
using tn::Shape;
using tn::Tensor;
using namespace tensor::testing;

namespace {

constexpr std::int64_t kChannels[] = {1, 3, 7, 16, 19, 63, 64, 65, 197};

Shape any_image_shape() {
  const std::int64_t channels = kChannels[pick(9)], most = channels > 20 ? 12 : 40;
  return {1 + pick(2), channels, 1 + pick(static_cast<int>(most)),
          1 + pick(static_cast<int>(most))};
}
Tensor whole(const Shape& shape, tn::DType dtype = tn::f32) {
  return tn::Generator(random_engine()()).randint(-50, 50, shape).astype(dtype);
}
tn::DType any_type() { return pick(2) ? tn::f32 : pick(2) ? tn::bf16 : tn::f16; }

struct Window {
  tn::Pair kernel, stride, padding;
};
Window any_window(const Shape& shape) {
  const auto side = [&](int axis) {
    return 1 + pick(static_cast<int>(std::min<std::int64_t>(shape[axis], 7)));
  };
  const tn::Pair kernel(side(2), side(3));
  return {kernel,
          {1 + pick(3), 1 + pick(3)},
          {pick(static_cast<int>(kernel.h / 2) + 1), pick(static_cast<int>(kernel.w / 2) + 1)}};
}

void check_image(const tn::TensorFunction& f, const Tensor& x, double relative, double scale) {
  expect_close(run_group("image", f, {x}, pick(4) ? &random_engine() : nullptr), relative, scale);
}

TEST(Image, MaxPoolIsExact) {
  for (int round = 0; round < 80; ++round) {
    const Shape shape = any_image_shape();
    const Window w = any_window(shape);
    Tensor x = normal(shape, any_type());
    if (round % 4 == 0) {
      const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
      const Tensor places = normal(shape);
      x = tn::where(places > 2, nan, tn::where(places < -1.5, -infinity, x)).astype(x.dtype());
    }
    check_image(
        [&](const Tensors& in) -> Tensors {
          return {tn::max_pool2d(in[0], w.kernel, w.stride, w.padding, round % 3 == 0)};
        },
        x, 0, 0);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Image, AvgPool) {
  for (int round = 0; round < 80; ++round) {
    const Shape shape = any_image_shape();
    const Window w = any_window(shape);
    const bool ceil_mode = round % 3 == 0, counts_padding = round % 4 > 1;
    // Sums of up to 7 pixels round with every step, as do 1 / n and the products: relative to the
    // mean of the sizes. Sums of rows are exact, unless rows count by their shares of windows that
    // are not whole: then they round as often.
    const double bound = (counts_padding && !ceil_mode ? 9 : 18) * 0x1p-24;
    check_image(
        [&](const Tensors& in) -> Tensors {
          return {tn::avg_pool2d(in[0], w.kernel, w.stride, w.padding, ceil_mode, counts_padding)};
        },
        whole(shape, any_type()), bound, 50);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Image, AvgPoolOverTheWholeImage) {
  const Tensor x = normal({2, 65, 33, 31});
  // The sum of 1023 numbers of size 1: the rounding of each step, relative to the mean of sizes.
  check_image(
      [](const Tensors& in) -> Tensors {
        return {tn::avg_pool2d(in[0], {33, 31})};
      },
      x, 0x1p-18, 1);
}

tn::InterpolateOptions any_options() {
  tn::InterpolateOptions options;
  options.mode = pick(2) ? tn::Interpolation::bilinear : tn::Interpolation::bicubic;
  options.align_corners = pick(3) == 0;
  options.antialias = !options.align_corners && pick(3) == 0;
  return options;
}

TEST(Image, Interpolate) {
  for (int round = 0; round < 80; ++round) {
    const Shape shape = any_image_shape();
    const tn::Pair size(1 + pick(40), 1 + pick(40));
    const tn::InterpolateOptions options = any_options();
    // Weights of either axis add up to 1, of cubics to at most 1.6 in size; up to a few dozen
    // terms, each with a weight that is rounded, of numbers of at most 5.
    check_image(
        [&](const Tensors& in) -> Tensors { return {tn::interpolate(in[0], size, options)}; },
        normal(shape, any_type()), 16 * 0x1p-23, 1.6 * 1.6 * 5);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Image, BilinearByPowersOfTwoIsExactOnWholeNumbers) {
  for (const std::int64_t factor : {2, 4, 8}) {
    const Shape shape = any_image_shape();
    // Numbers of 6 bits, and two weights that are multiples of 1 / (2 factor).
    check_image(
        [&](const Tensors& in) -> Tensors {
          return {tn::interpolate(
              in[0], {shape[2] * factor, shape[3] * factor},
              {.mode = tn::Interpolation::bilinear, .align_corners = false, .antialias = false})};
        },
        whole(shape), 0, 0);
    if (HasFailure()) FAIL() << shape;
  }
}

TEST(Image, NearestCopies) {
  for (int round = 0; round < 40; ++round) {
    const Shape shape = any_image_shape();
    const tn::Pair size(1 + pick(60), 1 + pick(60));
    check_image(
        [&](const Tensors& in) -> Tensors {
          return {tn::interpolate(in[0], size, {.mode = tn::Interpolation::nearest})};
        },
        normal(shape, any_type()), 0, 0);
    if (HasFailure()) FAIL() << "round " << round << ' ' << shape;
  }
}

TEST(Image, Declines) {
  const Tensor x = whole({1, 2, 4, 4}, tn::i32);
  EXPECT_FALSE(accepts(
      "image", [](const Tensors& in) -> Tensors { return {tn::max_pool2d(in[0], 2)}; }, {x}));
  EXPECT_FALSE(accepts(
      "image", [](const Tensors& in) -> Tensors { return {tn::relu(tn::max_pool2d(in[0], 2))}; },
      {x.astype(tn::f32)}));
}

}  // namespace

// interpolate against the definition of each mode, written out per pixel in two dimensions.
#include <array>
#include <functional>

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
constexpr auto kNearest = Interpolation::nearest;
constexpr auto kBilinear = Interpolation::bilinear;
constexpr auto kBicubic = Interpolation::bicubic;

struct Image {
  std::int64_t h, w;
  const double* pixels;
  // Coordinates beyond the edge mean the edge.
  double operator()(double y, double x) const {
    const auto row =
        static_cast<std::int64_t>(std::min(std::max(y, 0.0), static_cast<double>(h - 1)));
    const auto column =
        static_cast<std::int64_t>(std::min(std::max(x, 0.0), static_cast<double>(w - 1)));
    return pixels[row * w + column];
  }
};

// Where the centre of an output pixel lies on an axis of the input.
double source(std::int64_t at, std::int64_t from, std::int64_t to, bool corners) {
  const double place = static_cast<double>(at), in = static_cast<double>(from),
               out = static_cast<double>(to);
  if (corners) return to > 1 ? place * (in - 1) / (out - 1) : 0;
  return in / out * (place + 0.5) - 0.5;
}

using Pixel = std::function<double(const Image&, std::int64_t y, std::int64_t x)>;

// pixel(image, y, x) of every pixel of the result for x [N, C, H, W].
Numbers reference(const Tensor& x, Pair size, const Pixel& pixel) {
  const Numbers values = x.to_vector<double>();
  Numbers result;
  for (std::int64_t image = 0; image < x.shape(0) * x.shape(1); ++image) {
    const Image view{x.shape(2), x.shape(3), values.data() + image * x.shape(2) * x.shape(3)};
    for (std::int64_t oy = 0; oy < size.h; ++oy)
      for (std::int64_t ox = 0; ox < size.w; ++ox) result.push_back(pixel(view, oy, ox));
  }
  return result;
}

Pixel bilinear(Pair size, bool corners) {
  return [=](const Image& image, std::int64_t oy, std::int64_t ox) {
    const double y = std::max(source(oy, image.h, size.h, corners), 0.0);
    const double x = std::max(source(ox, image.w, size.w, corners), 0.0);
    const double top = std::floor(y), left = std::floor(x), down = y - top, right = x - left;
    return (1 - down) * ((1 - right) * image(top, left) + right * image(top, left + 1)) +
           down * ((1 - right) * image(top + 1, left) + right * image(top + 1, left + 1));
  };
}

// The four weights of Keys' interpolation at `t` of the way from the second to the third sample.
std::array<double, 4> cubic_weights(double t, double a) {
  const auto near = [&](double d) { return (a + 2) * d * d * d - (a + 3) * d * d + 1; };
  const auto far = [&](double d) { return a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a; };
  return {far(1 + t), near(t), near(1 - t), far(2 - t)};
}

Pixel bicubic(Pair size, bool corners) {
  return [=](const Image& image, std::int64_t oy, std::int64_t ox) {
    const double y = source(oy, image.h, size.h, corners), x = source(ox, image.w, size.w, corners);
    const double top = std::floor(y), left = std::floor(x);
    const auto rows = cubic_weights(y - top, -0.75), columns = cubic_weights(x - left, -0.75);
    double sum = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        sum += rows[static_cast<std::size_t>(i)] * columns[static_cast<std::size_t>(j)] *
               image(top + i - 1, left + j - 1);
    return sum;
  };
}

// The kernel over the whole image; what lies outside does not count, the weights add up to one.
Pixel antialiased(Pair size, bool is_cubic) {
  const auto kernel = [=](double d) {
    d = std::fabs(d);
    if (!is_cubic) return d < 1 ? 1 - d : 0;
    return d < 1 ? cubic_weights(d, -0.5)[1] : d < 2 ? cubic_weights(d - 1, -0.5)[0] : 0;
  };
  const auto weight = [=](std::int64_t at, std::int64_t place, std::int64_t from, std::int64_t to) {
    const double scale = std::max(static_cast<double>(from) / static_cast<double>(to), 1.0);
    return kernel((static_cast<double>(place) - source(at, from, to, false)) / scale);
  };
  return [=](const Image& image, std::int64_t oy, std::int64_t ox) {
    double sum = 0, total = 0;
    for (std::int64_t y = 0; y < image.h; ++y)
      for (std::int64_t x = 0; x < image.w; ++x) {
        const double both = weight(oy, y, image.h, size.h) * weight(ox, x, image.w, size.w);
        sum += both * image(static_cast<double>(y), static_cast<double>(x));
        total += both;
      }
    return sum / total;
  };
}

struct ResizeCase {
  InterpolateOptions options;
  Pixel (*pixel)(Pair, bool);
  bool argument;
};
const ResizeCase kResizeCases[] = {
    {{kBilinear, false, false}, bilinear, false},   {{kBilinear, true, false}, bilinear, true},
    {{kBicubic, false, false}, bicubic, false},     {{kBicubic, true, false}, bicubic, true},
    {{kBilinear, false, true}, antialiased, false}, {{kBicubic, false, true}, antialiased, true},
};

TEST(Interpolate, EveryModeTypeSizeAndLayout) {
  struct Sizes {
    Pair from, to;
  };
  const Sizes sizes[] = {{{6, 7}, {9, 14}}, {{6, 7}, {3, 4}},   {{5, 9}, {11, 2}},
                         {{1, 1}, {3, 5}},  {{8, 1}, {1, 4}},   {{2, 3}, {1, 1}},
                         {{4, 6}, {4, 9}},  {{31, 17}, {7, 40}}};
  for (const ResizeCase& test : kResizeCases)
    for (const Sizes& size : sizes)
      for (const DType dtype : {f16, bf16, f32, f64}) {
        const Tensor x = random_tensor({2, 3, size.from.h, size.from.w}, dtype);
        const Numbers expected = reference(x, size.to, test.pixel(size.to, test.argument));
        for (const Tensor& view : layouts(x)) {
          const Tensor got = interpolate(view, size.to, test.options);
          ASSERT_EQ(got.shape(), (Shape{2, 3, size.to.h, size.to.w}));
          ASSERT_EQ(got.dtype(), dtype);
          const Numbers values = got.to_vector<double>();
          // Some dozen double operations on numbers up to about 6 (weights may reach 1.3
          // times 1.3), where coordinates up to 40 lose 40 eps; then the rounding to the type,
          // which is absolute where f16 is subnormal.
          for (std::size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(
                values[i], expected[i],
                1000 * epsilon(f64) + epsilon(dtype) * std::max(std::fabs(expected[i]), 0x1p-14))
                << "mode " << int(test.options.mode) << " corners " << test.options.align_corners
                << " antialias " << test.options.antialias << " at " << i;
        }
      }
}

TEST(Interpolate, ExamplesOfTheTorchDocumentation) {
  const Tensor x = array({1.f, 2.f, 3.f, 4.f}).reshape({1, 1, 2, 2});
  expect_near(interpolate(x, 4), {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, 0);
  expect_near(interpolate(x, 4, {kBilinear}),
              {1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}, 0);
  expect_near(interpolate(x, 4, {kBilinear, true}),
              {1, 1.3333, 1.6667, 2, 1.6667, 2, 2.3333, 2.6667, 2.3333, 2.6667, 3, 3.3333, 3,
               3.3333, 3.6667, 4},
              5e-5);  // the documentation prints four digits
}

TEST(Interpolate, NearestCopiesElementsOfEveryType) {
  const Pair from{6, 7};
  for (const Pair& size : {Pair{9, 14}, Pair{3, 4}, Pair{12, 5}, Pair{6, 2}, Pair{1, 1}})
    for (const DType dtype : {boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
      const Tensor x = random_tensor({2, 3, from.h, from.w}, dtype);
      // Exact arithmetic: none of these sizes has a product that rounds across an integer.
      const Numbers expected =
          reference(x, size, [&](const Image& image, std::int64_t y, std::int64_t column) {
            return image(static_cast<double>(y * from.h / size.h),
                         static_cast<double>(column * from.w / size.w));
          });
      for (const Tensor& view : layouts(x)) {
        const Tensor got = interpolate(view, size);
        ASSERT_EQ(got.dtype(), dtype);
        ASSERT_EQ(got.to_vector<double>(), expected);
      }
    }
  const std::int64_t large = (std::int64_t{1} << 62) + 1;
  EXPECT_EQ(interpolate(full({1, 1, 1, 1}, large), 2).item<std::int64_t>(0, 0, 1, 1), large);
}

// 11 * float(390 / 330) lies below 13 in float: PyTorch takes element 12, and so do we.
TEST(Interpolate, NearestRoundsAsTorchDoes) {
  const Tensor row = arange(390).reshape({1, 1, 1, 390});
  EXPECT_EQ(interpolate(row, {1, 330}).item<int>(0, 0, 0, 11), 12);
}

TEST(Interpolate, SameSizeIsACopy) {
  const Tensor x =
      array({kNan, kInfinity, -kInfinity, 1.5, -0.0, 3., 4., 5.}).reshape({1, 2, 2, 2});
  for (const ResizeCase& test : kResizeCases) {
    const Tensor got = interpolate(x, 2, test.options);
    expect_near(got, x.to_vector<double>(), 0);
    EXPECT_FALSE(got.shares_storage(x));
  }
  EXPECT_EQ(interpolate(x, 2).to_vector<double>()[1], kInfinity);
}

// In float, the coordinates of 1333 columns are off by some 1e-4 of a pixel.
TEST(Interpolate, LargeFloatImagesAreExact) {
  const Tensor x = random_tensor({1, 1, 2, 900});
  const Pair size{2, 1333};
  expect_near(interpolate(x, size, {kBilinear}), reference(x, size, bilinear(size, false)), 1e-6,
              1);
}

TEST(Interpolate, Empty) {
  EXPECT_EQ(interpolate(zeros({0, 3, 4, 4}), {2, 5}).shape(), (Shape{0, 3, 2, 5}));
  EXPECT_EQ(interpolate(zeros({2, 0, 4, 4}), 3, {kBicubic}).shape(), (Shape{2, 0, 3, 3}));
}

TEST(Interpolate, Errors) {
  const Tensor x = zeros({1, 3, 4, 5});
  EXPECT_EQ(
      error_of([&] { interpolate(x(0), 2); }),
      "interpolate: got an input of the shape (3, 4, 5), need (batch, channels, height, width)");
  EXPECT_EQ(error_of([&] {
              interpolate(x, {2, 0});
            }),
            "interpolate: got 0 in the size (2, 0), need at least 1 and less than 2^31");
  EXPECT_EQ(error_of([&] {
              interpolate(zeros({1, 3, 0, 5}), 2);
            }),
            "interpolate: got an input of the shape (1, 3, 0, 5), need at least 1 x 1");
  EXPECT_EQ(error_of([&] {
              interpolate(x, 2, {kNearest, true});
            }),
            "interpolate: the mode nearest has no align_corners: use bilinear or bicubic");
  EXPECT_EQ(error_of([&] {
              interpolate(x, 2, {kNearest, false, true});
            }),
            "interpolate: the mode nearest has no antialias: use bilinear or bicubic");
  EXPECT_EQ(error_of([&] {
              interpolate(x, 2, {kBicubic, true, true});
            }),
            "interpolate: align_corners and antialias exclude each other");
  EXPECT_EQ(
      error_of([&] { interpolate(x.astype(u8), 2, {kBilinear}); }),
      "interpolate: got a tensor of u8, need a floating type for the mode bilinear: convert it "
      "with astype(f32), or use nearest");
  EXPECT_EQ(error_of([&] {
              apply_op(Op::interpolate, {x},
                       {{"size", Ints{2, 2}},
                        {"mode", "area"},
                        {"align_corners", false},
                        {"antialias", false}});
            }),
            "interpolate: got the mode \"area\", need nearest, bilinear or bicubic");
}

}  // namespace
}  // namespace tensor

// conv2d and conv_transpose2d against direct loops in float64.
#include <random>

#include "tests/ops/check.h"

namespace tensor {
namespace {

using check::epsilon;
using check::error_of;
using check::layouts;
using check::random_tensor;

using Numbers = std::vector<double>;

struct Geometry {
  std::int64_t batch = 1, groups = 1, inputs = 1, outputs = 1;  // channels of one group
  Pair image = 5, kernel = 3, stride = 1, padding = 0, output_padding = 0, dilation = 1;

  Shape x() const { return {batch, groups * inputs, image.h, image.w}; }
};

std::ostream& operator<<(std::ostream& out, const Geometry& g) {
  const auto put = [&](const char* name, const Pair& p) { out << name << p.h << 'x' << p.w; };
  out << "batch " << g.batch << " groups " << g.groups << " channels " << g.inputs << " -> "
      << g.outputs;
  put(" image ", g.image), put(" kernel ", g.kernel), put(" stride ", g.stride);
  put(" padding ", g.padding), put(" output_padding ", g.output_padding);
  put(" dilation ", g.dilation);
  return out;
}

// The result, and per element the sum of the magnitudes of what was added up.
struct Expected {
  Shape shape;
  Numbers values, magnitudes;
};

// Walks all products: where the kernel stands at (gy, gx) of the grid, tap (ky, kx) lies on (y, x)
// of the image.
template <class Visit>
void walk(const Geometry& g, const Pair& grid, const Pair& image, const Visit& visit) {
  for (std::int64_t gy = 0; gy < grid.h; ++gy)
    for (std::int64_t gx = 0; gx < grid.w; ++gx)
      for (std::int64_t ky = 0; ky < g.kernel.h; ++ky)
        for (std::int64_t kx = 0; kx < g.kernel.w; ++kx) {
          const std::int64_t y = gy * g.stride.h - g.padding.h + ky * g.dilation.h;
          const std::int64_t x = gx * g.stride.w - g.padding.w + kx * g.dilation.w;
          if (y >= 0 && y < image.h && x >= 0 && x < image.w)
            visit(gy * grid.w + gx, ky * g.kernel.w + kx, y * image.w + x);
        }
}

// Over all images, groups and pairs of channels.
template <class Visit>
void walk_channels(const Geometry& g, const Visit& visit) {
  for (std::int64_t at = 0; at < g.batch * g.groups; ++at)
    for (std::int64_t i = 0; i < g.inputs; ++i)
      for (std::int64_t o = 0; o < g.outputs; ++o) visit(at, at % g.groups, i, o);
}

Expected start(const Geometry& g, const Pair& size, const Numbers& bias) {
  Expected result{{g.batch, g.groups * g.outputs, size.h, size.w}, {}, {}};
  const std::int64_t channels = g.groups * g.outputs;
  for (std::int64_t at = 0; at < g.batch * channels; ++at)
    result.values.resize(result.values.size() + static_cast<std::size_t>(size.h * size.w),
                         bias.empty() ? 0 : bias[static_cast<std::size_t>(at % channels)]);
  for (const double value : result.values) result.magnitudes.push_back(std::fabs(value));
  return result;
}

void accumulate(Expected& expected, std::int64_t at, double product) {
  expected.values[static_cast<std::size_t>(at)] += product;
  expected.magnitudes[static_cast<std::size_t>(at)] += std::fabs(product);
}

Expected reference_conv2d(const Geometry& g, const Numbers& x, const Numbers& weight,
                          const Numbers& bias) {
  const auto extent = [](auto image, auto kernel, auto stride, auto padding, auto dilation) {
    return (image + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const Pair grid{extent(g.image.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h),
                  extent(g.image.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w)};
  const std::int64_t taps = g.kernel.h * g.kernel.w;
  Expected result = start(g, grid, bias);
  walk_channels(g, [&](std::int64_t at, std::int64_t group, std::int64_t i, std::int64_t o) {
    walk(g, grid, g.image, [&](std::int64_t position, std::int64_t tap, std::int64_t pixel) {
      const std::int64_t from = (at * g.inputs + i) * g.image.h * g.image.w + pixel;
      const std::int64_t by = ((group * g.outputs + o) * g.inputs + i) * taps + tap;
      accumulate(result, (at * g.outputs + o) * grid.h * grid.w + position,
                 x[static_cast<std::size_t>(from)] * weight[static_cast<std::size_t>(by)]);
    });
  });
  return result;
}

Expected reference_conv_transpose2d(const Geometry& g, const Numbers& x, const Numbers& weight,
                                    const Numbers& bias) {
  const auto extent = [](auto grid, auto kernel, auto stride, auto padding, auto dilation,
                         auto extra) {
    return (grid - 1) * stride - 2 * padding + dilation * (kernel - 1) + extra + 1;
  };
  const Pair& grid = g.image;
  const Pair image{
      extent(grid.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h, g.output_padding.h),
      extent(grid.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w, g.output_padding.w)};
  const std::int64_t taps = g.kernel.h * g.kernel.w;
  Expected result = start(g, image, bias);
  walk_channels(g, [&](std::int64_t at, std::int64_t group, std::int64_t i, std::int64_t o) {
    walk(g, grid, image, [&](std::int64_t position, std::int64_t tap, std::int64_t pixel) {
      const std::int64_t from = (at * g.inputs + i) * grid.h * grid.w + position;
      const std::int64_t by = ((group * g.inputs + i) * g.outputs + o) * taps + tap;
      accumulate(result, (at * g.outputs + o) * image.h * image.w + pixel,
                 x[static_cast<std::size_t>(from)] * weight[static_cast<std::size_t>(by)]);
    });
  });
  return result;
}

Tensor run(const Geometry& g, bool transposed, const Tensor& x, const Tensor& weight,
           const Tensor& bias) {
  if (transposed)
    return conv_transpose2d(x, weight, bias,
                            {g.stride, g.padding, g.output_padding, g.dilation, g.groups});
  return conv2d(x, weight, bias, {g.stride, g.padding, g.dilation, g.groups});
}

// Sums of n terms in an order of the library's choice are off by n eps times the sum of magnitudes
// at most (Higham, Accuracy and stability, 4.2); then the result is rounded once to its type, whose
// steps are constant below 2^-14 where it is f16.
void expect_sums(const Tensor& got, const Expected& expected, std::int64_t terms) {
  ASSERT_EQ(got.shape(), expected.shape);
  const double eps = std::min(epsilon(f32), epsilon(got.dtype()));
  const Numbers values = got.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double bound = static_cast<double>(terms) * eps * expected.magnitudes[i] +
                         epsilon(got.dtype()) * std::max(std::fabs(expected.values[i]), 0x1p-14);
    ASSERT_LE(std::fabs(values[i] - expected.values[i]), bound) << "at " << i;
  }
}

void check_case(const Geometry& g, bool transposed, DType dtype, bool with_bias, bool whole,
                bool all_layouts) {
  SCOPED_TRACE(testing::Message() << (transposed ? "conv_transpose2d " : "conv2d ") << dtype << ' '
                                  << g);
  const auto numbers = [&](const Shape& shape) {
    return whole ? random_tensor(shape, i8).astype(dtype) % 4 : random_tensor(shape, dtype);
  };
  const std::int64_t first = transposed ? g.inputs : g.outputs;
  const std::int64_t second = transposed ? g.outputs : g.inputs;
  const Tensor x = numbers(g.x());
  const Tensor weight = numbers({g.groups * first, second, g.kernel.h, g.kernel.w});
  const Tensor bias = with_bias ? numbers({g.groups * g.outputs}) : Tensor();
  const Expected expected = (transposed ? reference_conv_transpose2d : reference_conv2d)(
      g, x.to_vector<double>(), weight.to_vector<double>(),
      with_bias ? bias.to_vector<double>() : Numbers());
  for (std::size_t i = 0; i < (all_layouts ? layouts(x).size() : 1); ++i) {
    const Tensor got = run(g, transposed, layouts(x)[i], layouts(weight)[i],
                           with_bias ? layouts(bias)[i] : Tensor());
    ASSERT_EQ(got.dtype(), dtype);
    if (whole)  // sums of small integers are exact in float whatever the order
      ASSERT_EQ(got.to_vector<double>(), expected.values);
    else
      expect_sums(got, expected, g.inputs * g.kernel.h * g.kernel.w + 1);
  }
}

Geometry random_geometry(std::mt19937_64& bits) {
  const auto in = [&](int low, int high) {
    return std::uniform_int_distribution<>(low, high)(bits);
  };
  const auto pair = [&](int low, int high) { return Pair{in(low, high), in(low, high)}; };
  Geometry g;
  g.batch = in(1, 2), g.groups = in(1, 3), g.inputs = in(1, 4), g.outputs = in(1, 4);
  g.kernel = pair(1, 4), g.stride = pair(1, 3), g.padding = pair(0, 3), g.dilation = pair(1, 3);
  const auto span = [](auto kernel, auto dilation) { return dilation * (kernel - 1) + 1; };
  // At least as large as the kernel, less the padding (which may be all there is).
  const auto least = [&](auto size, auto padding) {
    return std::max<std::int64_t>(size - 2 * padding, 1);
  };
  g.image.h = least(span(g.kernel.h, g.dilation.h), g.padding.h) + in(0, 6);
  g.image.w = least(span(g.kernel.w, g.dilation.w), g.padding.w) + in(0, 6);
  return g;
}

std::mt19937_64 random_bits() {
  return std::mt19937_64(static_cast<std::uint64_t>(
      check::random().randint(0, std::int64_t{1} << 62, {}).item<std::int64_t>()));
}

TEST(Conv2d, RandomGeometriesInEveryTypeAndLayout) {
  std::mt19937_64 bits = random_bits();
  for (int i = 0; i < 40; ++i) {
    const Geometry g = random_geometry(bits);
    for (const DType dtype : {f16, bf16, f32, f64})
      check_case(g, false, dtype, i % 2 == 0, i % 3 == 0, i % 5 == 0);
  }
}

TEST(ConvTranspose2d, RandomGeometriesInEveryTypeAndLayout) {
  std::mt19937_64 bits = random_bits();
  for (int i = 0; i < 40; ++i) {
    Geometry g = random_geometry(bits);
    const auto below = [&](auto a, auto b) {
      return std::uniform_int_distribution<std::int64_t>(0, std::max(a, b) - 1)(bits);
    };
    g.output_padding = {below(g.stride.h, g.dilation.h), below(g.stride.w, g.dilation.w)};
    g.padding = {std::min(g.padding.h, g.dilation.h * (g.kernel.h - 1) / 2),
                 std::min(g.padding.w, g.dilation.w * (g.kernel.w - 1) / 2)};  // room for a result
    for (const DType dtype : {f16, bf16, f32, f64})
      check_case(g, true, dtype, i % 2 == 0, i % 3 == 0, i % 5 == 0);
  }
}

TEST(Conv2d, ShapesOfTheModels) {
  const Geometry patches{2, 1, 3, 8, 32, 16, 16};
  const Geometry stem{1, 1, 3, 4, {37, 23}, 7, 2, 3};
  const Geometry pointwise{2, 1, 8, 6, {9, 7}, 1};
  const Geometry pointwise_strided{2, 1, 8, 6, {9, 7}, 1, 2};
  const Geometry depthwise{1, 16, 1, 1, {14, 9}, 3, 1, 1};
  for (const Geometry& g : {patches, stem, pointwise, pointwise_strided, depthwise})
    check_case(g, false, f32, true, false, true);
}

// The columns of these do not fit into the scratch memory at once: the grid is cut within its rows.
TEST(Conv2d, LargeProblemsAreDoneInPieces) {
  check_case({1, 1, 64, 2, 41, 7, 1, 3}, false, f64, true, false, false);
  check_case({1, 1, 96, 2, 33, 7, 2, 2}, false, f64, true, false, false);
  check_case({1, 1, 2, 96, 33, 7, 2, 2}, true, f64, true, false, false);
}

TEST(Conv2d, PromotesTheOperands) {
  const Tensor x = ones({1, 1, 2, 2}, f16), weight = full({1, 1, 1, 1}, 3, f32);
  EXPECT_EQ(conv2d(x, weight).dtype(), f32);
  EXPECT_EQ(conv2d(ones({1, 1, 2, 2}, u8), weight).to_vector<int>(),
            (std::vector<int>{3, 3, 3, 3}));
}

TEST(Conv2d, Empty) {
  EXPECT_EQ(conv2d(zeros({0, 2, 5, 5}), zeros({3, 2, 3, 3})).shape(), (Shape{0, 3, 3, 3}));
  EXPECT_EQ(conv2d(zeros({1, 2, 5, 5}), zeros({0, 2, 3, 3})).shape(), (Shape{1, 0, 3, 3}));
  // No channels: what is left is the bias.
  EXPECT_EQ(conv2d(zeros({1, 0, 2, 2}), zeros({1, 0, 2, 1}), array({7.f})).to_vector<int>(),
            (std::vector<int>{7, 7}));
  EXPECT_EQ(conv2d(zeros({1, 1, 0, 1}), ones({1, 1, 2, 1}), {}, {.padding = 1}).to_vector<int>(),
            (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(conv_transpose2d(zeros({0, 2, 5, 5}), zeros({2, 3, 3, 3})).shape(),
            (Shape{0, 3, 7, 7}));
  EXPECT_EQ(
      conv_transpose2d(zeros({1, 0, 1, 1}), zeros({0, 1, 1, 2}), array({7.f})).to_vector<int>(),
      (std::vector<int>{7, 7}));
}

TEST(Conv2d, Errors) {
  const Tensor x = zeros({1, 4, 8, 9}), weight = zeros({6, 4, 3, 3});
  const auto error = [&](const Conv2dOptions& options) {
    return error_of([&] { conv2d(x, weight, {}, options); });
  };
  EXPECT_EQ(error_of([&] { conv2d(x.astype(i32), weight.astype(i32)); }),
            "conv2d: got tensors of i32, need a floating type: convert them with astype(f32)");
  EXPECT_EQ(error_of([&] { conv2d(x(0), weight); }),
            "conv2d: got an input of the shape (4, 8, 9), need (batch, channels, height, width)");
  EXPECT_EQ(
      error_of([&] { conv2d(x, weight(0)); }),
      "conv2d: got a weight of the shape (4, 3, 3), need (outputs, channels / groups, height, "
      "width)");
  EXPECT_EQ(error_of([&] {
              conv2d(x, zeros({6, 4, 3, 0}));
            }),
            "conv2d: got a weight of the shape (6, 4, 3, 0), need a kernel of at least 1 x 1 and "
            "less than 2^31");
  EXPECT_EQ(error_of([&] {
              conv2d(zeros({0, 1, 1, std::int64_t{1} << 31}), weight);
            }),
            "conv2d: got an input of the shape (0, 1, 1, 2147483648), need a height and width less "
            "than 2^31");
  EXPECT_EQ(
      error_of([&] {
        conv2d(x, zeros({6, 3, 3, 3}));
      }),
      "conv2d: got a weight of the shape (6, 3, 3, 3) for the input (1, 4, 8, 9) in 1 groups, "
      "need 4 channels");
  EXPECT_EQ(error({.groups = 4}),
            "conv2d: got 4 groups for 4 input and 6 output channels, need a divisor of both");
  EXPECT_EQ(error({.groups = 0}),
            "conv2d: got 0 groups for 4 input and 6 output channels, need a divisor of both");
  EXPECT_EQ(
      error({.groups = 2}),
      "conv2d: got a weight of the shape (6, 4, 3, 3) for the input (1, 4, 8, 9) in 2 groups, "
      "need 2 channels");
  EXPECT_EQ(error_of([&] { conv2d(x, weight, zeros({4})); }),
            "conv2d: got a bias of the shape (4,), need (6,)");
  EXPECT_EQ(error({.stride = {1, 0}}),
            "conv2d: got 0 in the stride (1, 0), need at least 1 and less than 2^31");
  EXPECT_EQ(error({.padding = {-1, 0}}),
            "conv2d: got -1 in the padding (-1, 0), need at least 0 and less than 2^31");
  EXPECT_EQ(error({.dilation = std::int64_t{1} << 31}),
            "conv2d: got 2147483648 in the dilation (2147483648, 2147483648), need at least 1 and "
            "less than 2^31");
  EXPECT_EQ(error({.padding = {0, 1}, .dilation = {4, 5}}),
            "conv2d: the kernel covers 9 x 11 elements, but the padded input has 8 x 11");
}

TEST(ConvTranspose2d, Errors) {
  const Tensor x = zeros({1, 4, 2, 3}), weight = zeros({4, 3, 3, 3});
  const auto error = [&](const ConvTranspose2dOptions& options) {
    return error_of([&] { conv_transpose2d(x, weight, {}, options); });
  };
  EXPECT_EQ(error_of([&] {
              conv_transpose2d(x, zeros({3, 4, 3, 3}));
            }),
            "conv_transpose2d: got a weight of the shape (3, 4, 3, 3) for the input (1, 4, 2, 3), "
            "need 4 channels");
  EXPECT_EQ(error_of([&] {
              conv_transpose2d(x, zeros({4, 3, 3}));
            }),
            "conv_transpose2d: got a weight of the shape (4, 3, 3), need (channels, outputs / "
            "groups, height, width)");
  EXPECT_EQ(error_of([&] {
              conv_transpose2d(zeros({1, 4, 0, 3}), weight);
            }),
            "conv_transpose2d: got an input of the shape (1, 4, 0, 3), need at least 1 x 1");
  EXPECT_EQ(error_of([&] { conv_transpose2d(x, weight, zeros({4})); }),
            "conv_transpose2d: got a bias of the shape (4,), need (3,)");
  EXPECT_EQ(error({.groups = 3}),
            "conv_transpose2d: got 3 groups for 4 input and 9 output channels, need a divisor of "
            "both");
  EXPECT_EQ(error({.groups = std::int64_t{1} << 62}),
            "conv_transpose2d: got 4611686018427387904 groups, which is too many");
  EXPECT_EQ(error({.stride = 2, .output_padding = {1, 2}}),
            "conv_transpose2d: got the output_padding 1 x 2, need less than the stride or the "
            "dilation");
  EXPECT_EQ(error({.padding = 2}),
            "conv_transpose2d: the result would have 0 x 1 elements, need at least 1 x 1: use less "
            "padding");
}

}  // namespace
}  // namespace tensor

// Operators that read images at places which other tensors say, and transposed convolutions of
// volumes, eagerly and compiled, against loops in float64.
#include "tests/error_of.h"
#include "tests/headers.h"
#include "tests/onnx_writer.h"
#include "tests/seed.h"

namespace tensor::testing {
namespace {

using namespace by_hand;

using check::error_of;

using Numbers = std::vector<double>;

class OnnxRegions : public ::testing::Test {
 protected:
  Tensor random(const Shape& shape, double low = -1, double high = 1) {
    std::uniform_real_distribution<double> numbers(low, high);
    std::vector<float> elements(static_cast<std::size_t>(num_elements(shape)));
    for (float& x : elements) x = static_cast<float>(numbers(generator_));
    return array(elements, shape);
  }

  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(generator_);
  }

  // Places of some tens of pixels have an error of 1e-5, as have elements then, whose slope is at
  // most 2 a pixel; sums of a hundred products of magnitudes up to 1 have less.
  static constexpr double kBound = 1e-4;

  static void expect(const OnnxModel& model, const std::vector<Tensor>& inputs, const Shape& shape,
                     const Numbers& want, bool compiles = true) {
    const Tensor eager = model(inputs)[0];
    ASSERT_EQ(eager.shape(), shape);
    EXPECT_TRUE(allclose(eager.to(f64), array(want, shape), 0, kBound));
    if (!compiles) return;
    const Tensor fast = compile(model, {.threads = 1})(inputs)[0];
    EXPECT_TRUE(allclose(fast.to(f64), array(want, shape), 0, kBound));
  }

 private:
  std::mt19937_64 generator_{check::seed()};
};

// A pixel between others, where those outside are zero.
double bilinear(const Tensor& x, std::int64_t n, std::int64_t c, double row, double column) {
  const double top = std::floor(row), left = std::floor(column);
  double sum = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const double y = top + i, z = left + j;
      if (y < 0 || z < 0 || y >= static_cast<double>(x.shape(2)) ||
          z >= static_cast<double>(x.shape(3)))
        continue;
      sum += (1 - std::abs(row - y)) * (1 - std::abs(column - z)) *
             x.item(n, c, static_cast<std::int64_t>(y), static_cast<std::int64_t>(z));
    }
  return sum;
}

// The mean of the samples of a cell, as the standard describes it.
double mean_of_cell(const Tensor& x, std::int64_t n, std::int64_t c, const Numbers& begin,
                    const Numbers& cell, const Ints& count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count[0]; ++i)
    for (std::int64_t j = 0; j < count[1]; ++j) {
      const double at[] = {
          begin[0] + cell[0] * (static_cast<double>(i) + 0.5) / static_cast<double>(count[0]),
          begin[1] + cell[1] * (static_cast<double>(j) + 0.5) / static_cast<double>(count[1])};
      const double most[] = {static_cast<double>(x.shape(2)), static_cast<double>(x.shape(3))};
      if (at[0] < -1 || at[0] > most[0] || at[1] < -1 || at[1] > most[1]) continue;
      sum += bilinear(x, n, c, std::clamp(at[0], 0.0, most[0] - 1),
                      std::clamp(at[1], 0.0, most[1] - 1));
    }
  return sum / static_cast<double>(std::max<std::int64_t>(count[0] * count[1], 1));
}

TEST_F(OnnxRegions, RoiAlignIsTheMeanOfItsSamples) {
  for (int round = 0; round < 12; ++round) {
    const std::int64_t images = 1 + round % 2, boxes = round == 4 ? 70 : number(1, 5);
    const std::int64_t rows = number(1, 4), columns = number(1, 4), ratio = round % 3;
    const bool is_half = round % 4 < 2;
    const Tensor x = random({images, number(1, 3), number(1, 9), number(1, 9)});
    // Some reach far out of the image, and some have ends before their beginnings.
    const Tensor corners = random({boxes, 4}, -8, 24);
    Ints of(static_cast<std::size_t>(boxes));
    for (std::int64_t& n : of) n = number(0, images - 1);
    const double scale = 0.5;
    Numbers want;
    for (std::int64_t r = 0; r < boxes; ++r)
      for (std::int64_t c = 0; c < x.shape(1); ++c)
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < columns; ++j) {
            Numbers begin, cell;
            Ints count;
            for (const int axis : {1, 0}) {  // of the box: its row, its column
              const double offset = is_half ? 0.5 : 0;
              const double low = corners.item(r, axis) * scale - offset;
              double length = corners.item(r, axis + 2) * scale - offset - low;
              if (!is_half) length = std::max(length, 1.0);
              cell.push_back(length / static_cast<double>(axis == 1 ? rows : columns));
              begin.push_back(low + cell.back() * static_cast<double>(axis == 1 ? i : j));
              const auto adapted = static_cast<std::int64_t>(std::ceil(cell.back()));
              count.push_back(ratio > 0 ? ratio : std::max<std::int64_t>(adapted, 0));
            }
            want.push_back(mean_of_cell(x, of[static_cast<std::size_t>(r)], c, begin, cell, count));
          }
    const std::vector<Tensor> inputs{x, corners, array(of)};
    const auto model = operator_alone(
        "RoiAlign", inputs, f32,
        {attribute("output_height", static_cast<int>(rows)),
         attribute("output_width", static_cast<int>(columns)),
         attribute("sampling_ratio", static_cast<int>(ratio)),
         attribute("spatial_scale", static_cast<float>(scale)),
         attribute("coordinate_transformation_mode", is_half ? "half_pixel" : "output_half_pixel")},
        16);
    SCOPED_TRACE(round);
    expect(model, inputs, {boxes, x.shape(1), rows, columns}, want);
  }
}

// Far more samples lie outside than inside, before and behind: of ones, their share is the result.
TEST_F(OnnxRegions, RoiAlignCountsSamplesOfBoxesFarBeyondTheImage) {
  const std::vector<Tensor> inputs{ones({1, 1, 2, 1}, f32),
                                   array(Numbers{-40.3, -100.2, 20.4, 7.7}, {1, 4}).to(f32),
                                   zeros({1}, i64)};
  const auto model = operator_alone(
      "RoiAlign", inputs, f32,
      {attribute("output_height", 1), attribute("output_width", 1),
       attribute("coordinate_transformation_mode", std::string("output_half_pixel"))},
      16);
  double share = 1;
  const Numbers box = {-40.3, -100.2, 20.4, 7.7};
  for (const int axis : {0, 1}) {
    const double cell =
        box[static_cast<std::size_t>(axis) + 2] - box[static_cast<std::size_t>(axis)];
    const double count = std::ceil(cell), extent = axis == 0 ? 1 : 2;
    double inside = 0;
    for (int i = 0; i < count; ++i) {
      const double at = box[static_cast<std::size_t>(axis)] + cell * (i + 0.5) / count;
      inside += at >= -1 && at <= extent;
    }
    share *= inside / count;
  }
  expect(model, inputs, {1, 1, 1, 1}, {share});
}

TEST_F(OnnxRegions, RoiAlignOfNoBoxesIsEmpty) {
  for (const int ratio : {0, 2}) {
    const std::vector<Tensor> inputs{random({1, 3, 4, 5}), zeros({0, 4}), zeros({0}, i64)};
    const auto model = operator_alone("RoiAlign", inputs, f32,
                                      {attribute("output_height", 2), attribute("output_width", 3),
                                       attribute("sampling_ratio", ratio)});
    EXPECT_EQ(model(inputs)[0].shape(), (Shape{0, 3, 2, 3}));
  }
}

TEST_F(OnnxRegions, DeformConvTakesItsTapsWhereTheOffsetsSay) {
  for (int round = 0; round < 8; ++round) {
    const std::int64_t groups = 1 + round % 2, parts = 1 + round / 2 % 2, taps = 2 + round % 3;
    const std::int64_t stride = number(1, 2), dilation = number(1, 2), before = number(0, 2);
    const std::int64_t channels = 4, features = 2 * groups, images = 2;
    const Tensor x = random({images, channels, number(7, 9), number(7, 9)});
    const Tensor weight = random({features, channels / groups, taps, 2});
    const auto extent = [&](int axis, std::int64_t kernel) {
      return (x.shape(axis) + before + 1 - dilation * (kernel - 1) - 1) / stride + 1;
    };
    const std::int64_t height = extent(2, taps), width = extent(3, 2);
    const Tensor offset = random({images, parts * taps * 2 * 2, height, width}, -3, 3);
    const Tensor bias = random({features});
    const Tensor mask = random({images, parts * taps * 2, height, width});
    const bool has_mask = round % 2 == 0;
    Numbers want;
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t f = 0; f < features; ++f)
        for (std::int64_t i = 0; i < height; ++i)
          for (std::int64_t j = 0; j < width; ++j) {
            double sum = bias.item(f);
            for (std::int64_t c = 0; c < channels / groups; ++c)
              for (std::int64_t a = 0; a < taps; ++a)
                for (std::int64_t b = 0; b < 2; ++b) {
                  const std::int64_t channel = f / (features / groups) * (channels / groups) + c;
                  const std::int64_t part = channel / (channels / parts);
                  const std::int64_t tap = (part * taps + a) * 2 + b;
                  const double row = static_cast<double>(i * stride - before + a * dilation) +
                                     offset.item(n, 2 * tap, i, j);
                  const double column = static_cast<double>(j * stride - before + b * dilation) +
                                        offset.item(n, 2 * tap + 1, i, j);
                  sum += weight.item(f, c, a, b) * bilinear(x, n, channel, row, column) *
                         (has_mask ? mask.item(n, tap, i, j) : 1);
                }
            want.push_back(sum);
          }
    std::vector<Tensor> inputs{x, weight, offset, bias};
    if (has_mask) inputs.push_back(mask);
    const auto model = operator_alone("DeformConv", inputs, f32,
                                      {attribute("group", static_cast<int>(groups)),
                                       attribute("offset_group", static_cast<int>(parts)),
                                       attribute("strides", Ints{stride, stride}),
                                       attribute("dilations", Ints{dilation, dilation}),
                                       attribute("pads", Ints{before, before, 1, 1})},
                                      19);
    SCOPED_TRACE(round);
    expect(model, inputs, {images, features, height, width}, want);
  }
}

TEST_F(OnnxRegions, AffineGridTurnsPlaces) {
  for (const bool is_aligned : {false, true})
    for (const int axes : {2, 3}) {
      const Shape theta_shape{2, axes, axes + 1};
      const Tensor theta = random(theta_shape);
      Ints size{2, 3};
      // The only element of an axis lies in the middle.
      for (int i = 0; i < axes; ++i) size.push_back(i == 1 ? 1 : number(2, 5));
      const auto place = [&](std::int64_t i, int axis) {
        const double count = static_cast<double>(size[static_cast<std::size_t>(axis + 2)]);
        const double at = static_cast<double>(i);
        if (is_aligned) return count == 1 ? 0 : 2 * at / (count - 1) - 1;
        return (2 * at + 1) / count - 1;
      };
      const std::int64_t depth = axes == 3 ? size[2] : 1, height = size[size.size() - 2];
      Numbers want;
      for (std::int64_t n = 0; n < 2; ++n)
        for (std::int64_t k = 0; k < depth; ++k)
          for (std::int64_t i = 0; i < height; ++i)
            for (std::int64_t j = 0; j < size.back(); ++j)
              for (int row = 0; row < axes; ++row) {
                double sum = theta.item(n, row, axes) + theta.item(n, row, 0) * place(j, axes - 1) +
                             theta.item(n, row, 1) * place(i, axes - 2);
                if (axes == 3) sum += theta.item(n, row, 2) * place(k, 0);
                want.push_back(sum);
              }
      Ints shape{2};
      shape.insert(shape.end(), size.begin() + 2, size.end());
      shape.push_back(axes);
      const std::vector<Tensor> inputs{theta, array(size)};
      const auto alone = operator_alone("AffineGrid", inputs, f32,
                                        {attribute("align_corners", is_aligned ? 1 : 0)}, 20);
      expect(alone, inputs, Shape(shape), want, false);  // of a size that an input says
      const Tensor fast = compile(
          [&](const Tensor& t) {
            return alone({t, inputs[1]})[0];
          },
          {.threads = 1})(theta);
      EXPECT_TRUE(allclose(fast.to(f64), array(want, Shape(shape)), 0, kBound));
    }
}

TEST_F(OnnxRegions, ConvTransposeOfVolumesAddsEveryTap) {
  for (int round = 0; round < 12; ++round) {
    const int groups = 1 + round % 2;
    const std::int64_t images = 2, features = 2 * groups, channels = 2 * groups;
    const Ints kernel{number(1, 4), number(1, 3), number(1, 3)};
    const Ints stride{number(1, 3), number(1, 2), number(1, 2)};
    const Ints dilation{number(1, 2), 1, number(1, 2)};
    const Ints extra{number(0, stride[0] - 1), 0, number(0, stride[2] - 1)};
    const Tensor x = random({images, channels, number(2, 4), 3, 4});
    const Tensor weight = random({channels, 2, kernel[0], kernel[1], kernel[2]});
    const Tensor bias = random({features});
    Ints out, begin{round % 3 == 0 ? 1 : 0, 0, 0}, pads{begin};
    for (std::size_t i = 0; i < 3; ++i) {
      pads.push_back(i == 2 && round % 2 ? 1 : 0);
      out.push_back((x.shape(static_cast<int>(i) + 2) - 1) * stride[i] +
                    dilation[i] * (kernel[i] - 1) + 1 + extra[i] - begin[i] - pads[i + 3]);
    }
    const Shape shape{images, features, out[0], out[1], out[2]};
    Tensor sums = zeros(shape, f64);
    for (std::int64_t n = 0; n < images; ++n)
      for (std::int64_t f = 0; f < features; ++f)
        for (std::int64_t i = 0; i < num_elements(Shape(out)); ++i)
          sums.at<double>(n, f, i / (out[1] * out[2]), i / out[2] % out[1], i % out[2]) =
              bias.item(f);
    for (std::int64_t at = 0; at < x.size(); ++at)
      for (std::int64_t tap = 0; tap < 2 * kernel[0] * kernel[1] * kernel[2]; ++tap) {
        Ints place(5), k{0, 0, tap % 2};
        std::int64_t rest = at, other = tap / 2;
        for (int axis = 4; axis >= 0; --axis) {
          const auto a = static_cast<std::size_t>(axis);
          place[a] = rest % x.shape(axis), rest /= x.shape(axis);
        }
        const Ints t{other / (kernel[1] * kernel[2]), other / kernel[2] % kernel[1],
                     other % kernel[2]};
        Ints to(3);
        bool is_inside = true;
        for (std::size_t i = 0; i < 3; ++i) {
          to[i] = place[i + 2] * stride[i] + t[i] * dilation[i] - begin[i];
          is_inside = is_inside && to[i] >= 0 && to[i] < out[i];
        }
        if (!is_inside) continue;
        const std::int64_t f = place[1] / 2 * 2 + k[2];
        sums.at<double>(place[0], f, to[0], to[1], to[2]) +=
            x.item(place[0], place[1], place[2], place[3], place[4]) *
            weight.item(place[1], k[2], t[0], t[1], t[2]);
      }
    const std::vector<Tensor> inputs{x, weight, bias};
    const auto model = operator_alone(
        "ConvTranspose", inputs, f32,
        {attribute("group", groups), attribute("strides", stride), attribute("dilations", dilation),
         attribute("output_padding", extra), attribute("pads", pads)});
    SCOPED_TRACE(round);
    expect(model, inputs, shape, sums.to_vector<double>());
  }
}

TEST_F(OnnxRegions, RefuseWhatDoesNotFit) {
  const auto error_in = [](const std::string& type, const std::vector<Tensor>& inputs,
                           const std::vector<Message>& attributes = {}) {
    const std::string text =
        error_of([&] { operator_alone(type, inputs, f32, attributes, 20)(inputs); });
    const std::string start = "m: node \"make y\" (" + type + " of opset 20): ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const Tensor x = ones({1, 2, 4, 4}), boxes = ones({3, 4}), images = zeros({3}, i64);
  EXPECT_EQ(
      error_in("RoiAlign", {x, boxes, zeros({2}, i64)}),
      "roi_align: got an input of the shape (1, 2, 4, 4), boxes of the shape (3, 4) and their "
      "images of the shape (2,), need (N, C, H, W), (R, 4) and (R)");
  EXPECT_EQ(error_in("RoiAlign", {x, boxes, images}, {attribute("output_height", 0)}),
            "roi_align: got 0 in the output_size (0, 1), need at least 1 and less than 2^31");
  EXPECT_NE(error_in("RoiAlign", {x, boxes, images}, {attribute("mode", "max")})
                .find("RoiAlign with mode=\"max\""),
            std::string::npos);
  EXPECT_EQ(error_in("DeformConv", {x, ones({1, 2, 3, 3}), ones({1, 18, 2, 1})}),
            "deform_conv: got offsets of the shape (1, 18, 2, 1), need (1, 18, 2, 2)");
  EXPECT_EQ(error_in("DeformConv", {x, ones({1, 2, 3, 3}), ones({1, 18, 2, 2})},
                     {attribute("offset_group", 3)}),
            "deform_conv: got offset_group=3 for 2 channels");
  EXPECT_EQ(error_in("AffineGrid", {ones({1, 2, 3}), array(Ints{2, 3, 4, 4})}),
            "affine_grid: got theta of the shape (1, 2, 3) for the size [2, 3, 4, 4], need (N, 2, "
            "3) for (N, C, H, W) or (N, 3, 4) for (N, C, D, H, W)");
}

}  // namespace
}  // namespace tensor::testing

// Drawing: what is inked, what is left alone, and the edges of the image.
#include "models/common/draw.h"

#include <gtest/gtest.h>

#include <set>

#include "models/common/font.h"
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tests/error_of.h"

namespace {

using models::Canvas;
using models::Color;
using tensor::Tensor;
using tensor::check::error_of;

constexpr Color kRed = {255, 0, 0}, kWhite = {255, 255, 255};

Tensor black(std::int64_t height, std::int64_t width) {
  return tensor::zeros({height, width, 3}, tensor::u8);
}

Color pixel(const Tensor& image, std::int64_t y, std::int64_t x) {
  return {image.item<std::uint8_t>(y, x, 0), image.item<std::uint8_t>(y, x, 1),
          image.item<std::uint8_t>(y, x, 2)};
}

/// The number of pixels that are not black.
std::int64_t inked_pixels(const Tensor& image) {
  return tensor::sum(tensor::any(image != 0, 2)).item<std::int64_t>();
}

TEST(Draw, LeavesTheOriginalAlone) {
  const Tensor image = black(4, 4);
  Canvas canvas(image);
  canvas.fill({0, 0, 4, 4}, kRed);
  EXPECT_EQ(inked_pixels(image), 0);
  EXPECT_EQ(inked_pixels(canvas.image()), 16);
}

TEST(Draw, FillsExactlyTheRectangleAndClips) {
  Canvas canvas(black(5, 7));
  canvas.fill({2, 1, 3, 2}, kRed);
  EXPECT_EQ(inked_pixels(canvas.image()), 6);
  EXPECT_EQ(pixel(canvas.image(), 1, 2), kRed);
  EXPECT_EQ(pixel(canvas.image(), 2, 4), kRed);
  canvas.fill({-3, -3, 4, 4}, kRed), canvas.fill({6, 4, 100, 100}, kRed);
  canvas.fill({100, 100, 5, 5}, kRed), canvas.fill({3, 3, -2, 1}, kRed);
  EXPECT_EQ(inked_pixels(canvas.image()), 8);
}

TEST(Draw, MixesByAlpha) {
  Canvas canvas(black(1, 1));
  canvas.fill({0, 0, 1, 1}, {200, 100, 0}, 0.25);
  EXPECT_EQ(pixel(canvas.image(), 0, 0), (Color{50, 25, 0}));
  const Tensor a = tensor::full({1, 1, 3}, 10, tensor::u8),
               b = tensor::full({1, 1, 3}, 21, tensor::u8);
  EXPECT_EQ(models::blend(a, b, 0.5).item<int>(0, 0, 0), 16);  // 15.5, to even
  EXPECT_EQ(models::blend(a, b, 0).item<int>(0, 0, 0), 10);
  EXPECT_EQ(models::blend(a, b, 1).item<int>(0, 0, 0), 21);
}

TEST(Draw, GreyIsLuma) {
  const Tensor image = tensor::array<int>({{{255, 0, 0}, {0, 255, 0}, {0, 0, 255}, {9, 9, 9}}});
  const Tensor luma = models::grey(image.astype(tensor::u8));
  EXPECT_EQ(pixel(luma, 0, 0), (Color{76, 76, 76}));  // 0.299 * 255 = 76.2, and so on
  EXPECT_EQ(pixel(luma, 0, 1), (Color{150, 150, 150}));
  EXPECT_EQ(pixel(luma, 0, 2), (Color{29, 29, 29}));
  EXPECT_EQ(pixel(luma, 0, 3), (Color{9, 9, 9}));
  EXPECT_EQ(error_of([] {
              models::grey(tensor::zeros({2, 2}, tensor::u8));
            }),
            "grey: got u8(2, 2), need an image u8(height, width, 3)");
}

TEST(Draw, OutlinesInwards) {
  Canvas canvas(black(10, 12));
  canvas.outline({1, 2, 8, 6}, kRed, 2);
  EXPECT_EQ(inked_pixels(canvas.image()), 8 * 6 - 4 * 2);
  EXPECT_EQ(pixel(canvas.image(), 2, 1), kRed);
  EXPECT_EQ(pixel(canvas.image(), 7, 8), kRed);
  EXPECT_EQ(pixel(canvas.image(), 4, 3), (Color{0, 0, 0}));
  Canvas small(black(4, 4));
  small.outline({1, 1, 2, 2}, kRed, 9);  // as thick as the box is
  EXPECT_EQ(inked_pixels(small.image()), 4);
}

TEST(Draw, GlyphsDifferAndHaveTheirSize) {
  std::set<std::string> shapes;
  for (int code = 32; code < 127; ++code) {
    std::string shape;
    for (std::int64_t row = 0; row < models::kGlyphHeight; ++row)
      for (std::int64_t column = 0; column < models::kGlyphWidth; ++column)
        shape += models::inked(static_cast<char>(code), column, row) ? '#' : '.';
    EXPECT_TRUE(shapes.insert(shape).second) << static_cast<char>(code);
    EXPECT_EQ(shape.find('#') == shape.npos, code == ' ') << static_cast<char>(code);
  }
  EXPECT_TRUE(models::inked('\x80', 2, 6));  // shows as '?'
}

TEST(Draw, WritesTextToScale) {
  const std::string line = "Hi";
  Canvas one(black(9, 11)), three(black(27, 33));
  one.text(0, 0, line, kWhite), three.text(0, 0, line, kWhite, 3);
  EXPECT_EQ(models::text_width(line), 11);
  EXPECT_EQ(models::text_width(line, 3), 33);
  EXPECT_EQ(models::text_width(""), 0);
  EXPECT_EQ(models::text_height(3), 27);
  EXPECT_EQ(inked_pixels(three.image()), 9 * inked_pixels(one.image()));
  for (std::int64_t y = 0; y < 27; ++y)
    for (std::int64_t x = 0; x < 33; ++x)
      EXPECT_EQ(pixel(three.image(), y, x), pixel(one.image(), y / 3, x / 3));
  EXPECT_EQ(models::text_width("caf\xC3\xA9"), models::text_width("cafe"));  // UTF-8
}

TEST(Draw, ShortensText) {
  EXPECT_EQ(models::shortened("abcdef", 35), "abcdef");
  EXPECT_EQ(models::shortened("abcdef", 34), "abc..");
  EXPECT_LE(models::text_width(models::shortened("abcdef", 34)), 34);
  EXPECT_EQ(models::shortened("abc", 1), "..");
}

TEST(Draw, TagsStayInside) {
  Canvas canvas(black(40, 100));
  const models::Rect area = canvas.tag(90, 35, "label", kRed);
  EXPECT_EQ(area.x + area.width, 100);
  EXPECT_EQ(area.y + area.height, 40);
  EXPECT_EQ(pixel(canvas.image(), 39, 99), kRed);
  EXPECT_EQ(inked_pixels(canvas.image()), area.width * area.height);  // white on red
  EXPECT_EQ(canvas.tag(-5, -5, "x", kRed).x, 0);
}

TEST(Draw, InkIsLegible) {
  EXPECT_EQ(models::ink_on({255, 255, 0}), (Color{0, 0, 0}));
  EXPECT_EQ(models::ink_on({0, 0, 128}), kWhite);
}

TEST(Draw, PaletteColorsAreApart) {
  for (std::int64_t i = 0; i < 36; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      int distance = 0;
      for (std::size_t c = 0; c < 3; ++c)
        distance += std::abs(int{models::palette(i)[c]} - int{models::palette(j)[c]});
      EXPECT_GE(distance, 30) << i << " " << j;
    }
  EXPECT_EQ(models::palette(36), models::palette(0));
}

TEST(Draw, LegendsKeepTheImageAndFit) {
  const Tensor image = tensor::Generator(3).randint(1, 256, {30, 200, 3}, tensor::u8);
  std::vector<models::LegendEntry> entries;
  for (int i = 0; i < 7; ++i) entries.push_back({models::palette(i), "entry " + std::to_string(i)});
  const Tensor picture = models::with_legend(image, entries);
  EXPECT_EQ(picture.shape(1), 200);
  ASSERT_GT(picture.shape(0), 30);
  EXPECT_TRUE(tensor::all(picture(tensor::slice(0, 30)) == image).item<bool>());
  std::set<Color> seen;
  for (std::int64_t y = 30; y < picture.shape(0); ++y)
    for (std::int64_t x = 0; x < 200; ++x) seen.insert(pixel(picture, y, x));
  for (const models::LegendEntry& entry : entries) EXPECT_TRUE(seen.contains(entry.color));
  const Tensor narrow = models::with_legend(black(10, 10), entries);
  EXPECT_GT(narrow.shape(1), models::text_width("entry 0"));
  EXPECT_EQ(models::with_legend(image, {}).shape(), image.shape());
}

TEST(Draw, SaysWhatIsWrong) {
  EXPECT_EQ(error_of([] {
              Canvas canvas(tensor::zeros({2, 2, 3}));
            }),
            "Canvas: got f32(2, 2, 3), need an image u8(height, width, 3)");
  EXPECT_EQ(error_of([] { models::blend(black(2, 2), black(2, 3), 0.5); }),
            "blend: got images of the shapes (2, 2, 3) and (2, 3, 3), need equal ones");
}

}  // namespace

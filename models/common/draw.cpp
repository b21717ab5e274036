// Rectangles, text and legends, pixel by pixel.
#include "models/common/draw.h"

#include <algorithm>
#include <cmath>

#include "models/common/font.h"
#include "tensor/creation.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace models {

using tensor::Tensor;

namespace {

constexpr Color kPanel = {24, 26, 30}, kPanelInk = {235, 235, 235}, kPanelEdge = {96, 100, 108};
constexpr double kLuma[] = {0.299, 0.587, 0.114};  // Rec. 601
constexpr std::int64_t kMargin = 2;                // around tagged text, in units of the scale

void require_image(const char* where, const Tensor& image) {
  if (image.dtype() != tensor::u8 || image.rank() != 3 || image.shape(2) != 3)
    tensor::fail(where, "got ", image.type(), ", need an image u8(height, width, 3)");
}

/// The line with one byte a letter: UTF-8's continuation bytes left out, its lead bytes not ASCII.
std::string letters(std::string_view line) {
  std::string result;
  for (const char byte : line)
    if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) result += byte;
  return result;
}

std::uint8_t mix(std::uint8_t below, std::uint8_t above, double alpha) {
  return static_cast<std::uint8_t>(std::lround(below * (1 - alpha) + above * alpha));
}

}  // namespace

Color palette(std::int64_t index) {
  // Twelve colours far apart, then the same darker and lighter.
  static constexpr Color kBase[] = {{230, 57, 70},  {42, 157, 235}, {82, 183, 60},
                                    {255, 183, 3},  {155, 93, 229}, {0, 187, 170},
                                    {255, 112, 30}, {241, 91, 181}, {110, 90, 70},
                                    {170, 214, 20}, {20, 70, 200},  {150, 150, 150}};
  constexpr auto kCount = static_cast<std::int64_t>(std::size(kBase));
  Color color = kBase[index % kCount];
  const std::int64_t round = index / kCount % 3;
  for (std::uint8_t& level : color) {
    if (round == 1) level = mix(level, 0, 0.4);
    if (round == 2) level = mix(level, 255, 0.45);
  }
  return color;
}

Color ink_on(Color background) {
  const double luma =
      kLuma[0] * background[0] + kLuma[1] * background[1] + kLuma[2] * background[2];
  return luma > 140 ? Color{0, 0, 0} : Color{255, 255, 255};
}

Canvas::Canvas(const Tensor& image) {
  require_image("Canvas", image);
  image_ = image.copy();
}

void Canvas::paste(std::int64_t x, std::int64_t y, const Tensor& image) {
  require_image("paste", image);
  const std::int64_t left = std::max<std::int64_t>(x, 0), top = std::max<std::int64_t>(y, 0);
  const std::int64_t right = std::min(x + image.shape(1), width());
  const std::int64_t bottom = std::min(y + image.shape(0), height());
  if (left >= right || top >= bottom) return;
  image_(tensor::slice(top, bottom), tensor::slice(left, right)) =
      image(tensor::slice(top - y, bottom - y), tensor::slice(left - x, right - x));
}

void Canvas::fill(const Rect& area, Color color, double alpha) {
  const std::int64_t right = std::min(area.x + area.width, width());
  const std::int64_t bottom = std::min(area.y + area.height, height());
  const std::int64_t left = std::max<std::int64_t>(area.x, 0);
  std::uint8_t* pixels = image_.mutable_data<std::uint8_t>();
  for (std::int64_t y = std::max<std::int64_t>(area.y, 0); y < bottom; ++y)
    for (std::int64_t x = left; x < right; ++x)
      for (std::size_t c = 0; c < 3; ++c) {
        std::uint8_t& level = pixels[(y * width() + x) * 3 + static_cast<std::int64_t>(c)];
        level = mix(level, color[c], alpha);
      }
}

void Canvas::outline(const Rect& box, Color color, std::int64_t thickness) {
  const std::int64_t t = std::min({thickness, (box.width + 1) / 2, (box.height + 1) / 2});
  fill({box.x, box.y, box.width, t}, color);
  fill({box.x, box.y + box.height - t, box.width, t}, color);
  fill({box.x, box.y + t, t, box.height - 2 * t}, color);
  fill({box.x + box.width - t, box.y + t, t, box.height - 2 * t}, color);
}

void Canvas::text(std::int64_t x, std::int64_t y, std::string_view line, Color color,
                  std::int64_t scale) {
  for (const char letter : letters(line)) {
    for (std::int64_t row = 0; row < kGlyphHeight; ++row)
      for (std::int64_t column = 0; column < kGlyphWidth; ++column)
        if (inked(letter, column, row))
          fill({x + column * scale, y + row * scale, scale, scale}, color);
    x += (kGlyphWidth + 1) * scale;
  }
}

Rect Canvas::tag(std::int64_t x, std::int64_t y, std::string_view line, Color background,
                 std::int64_t scale) {
  const std::int64_t margin = kMargin * scale;
  Rect area{x, y, text_width(line, scale) + 2 * margin, text_height(scale) + 2 * margin};
  area.x = std::max<std::int64_t>(std::min(x, width() - area.width), 0);
  area.y = std::max<std::int64_t>(std::min(y, height() - area.height), 0);
  fill(area, background);
  text(area.x + margin, area.y + margin, line, ink_on(background), scale);
  return area;
}

std::int64_t text_width(std::string_view line, std::int64_t scale) {
  const auto count = static_cast<std::int64_t>(letters(line).size());
  return count == 0 ? 0 : (count * (kGlyphWidth + 1) - 1) * scale;
}

std::string shortened(std::string_view line, std::int64_t width, std::int64_t scale) {
  std::string text = letters(line);
  if (text_width(text, scale) <= width) return text;
  while (!text.empty() && text_width(text + "..", scale) > width) text.pop_back();
  return text + "..";
}

std::int64_t text_height(std::int64_t scale) { return kGlyphHeight * scale; }

std::int64_t text_scale(std::int64_t height, std::int64_t width) {
  return std::clamp<std::int64_t>(std::max(height, width) / 400, 1, 8);
}

Tensor with_legend(const Tensor& image, const std::vector<LegendEntry>& entries) {
  require_image("with_legend", image);
  if (entries.empty()) return image;
  const std::int64_t height = image.shape(0);
  const std::int64_t scale = text_scale(height, image.shape(1));
  const std::int64_t line = text_height(scale) + 4 * scale, gap = 6 * scale;
  std::int64_t longest = 0;
  for (const LegendEntry& entry : entries)
    longest = std::max(longest, text_width(entry.text, scale));
  const std::int64_t swatch = text_height(scale), cell = swatch + longest + 3 * gap / 2;
  const std::int64_t width = std::max(image.shape(1), cell + gap);
  const auto count = static_cast<std::int64_t>(entries.size());
  const std::int64_t columns = std::clamp<std::int64_t>((width - gap) / cell, 1, count);
  const std::int64_t rows = (count + columns - 1) / columns;

  Canvas canvas(tensor::zeros({height + rows * line + gap, width, 3}, tensor::u8));
  canvas.fill({0, 0, width, canvas.height()}, kPanel);
  canvas.paste((width - image.shape(1)) / 2, 0, image);
  for (std::int64_t i = 0; i < count; ++i) {
    const LegendEntry& entry = entries[static_cast<std::size_t>(i)];
    // Down the columns, as a reader goes.
    const std::int64_t x = gap + i / rows * cell,
                       y = height + gap / 2 + i % rows * line + 2 * scale;
    canvas.fill({x, y, swatch, swatch}, entry.color);
    canvas.outline({x, y, swatch, swatch}, kPanelEdge);  // dark colours would not be seen
    canvas.text(x + swatch + gap / 2, y, entry.text, kPanelInk, scale);
  }
  return canvas.image();
}

Tensor grey(const Tensor& image) {
  require_image("grey", image);
  const Tensor weights = tensor::array({kLuma[0], kLuma[1], kLuma[2]});
  const Tensor luma = tensor::sum(image.astype(tensor::f64) * weights, -1, true);
  return tensor::broadcast_to(tensor::round(luma).astype(tensor::u8), image.shape());
}

Tensor blend(const Tensor& image, const Tensor& other, double alpha) {
  require_image("blend", image);
  require_image("blend", other);
  if (!(image.shape() == other.shape()))
    tensor::fail("blend", "got images of the shapes ", image.shape(), " and ", other.shape(),
                 ", need equal ones");
  const Tensor mixed = image.astype(tensor::f32) * (1 - alpha) + other.astype(tensor::f32) * alpha;
  return tensor::round(mixed).astype(tensor::u8);
}

}  // namespace models

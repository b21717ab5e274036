// Drawing on u8 images [height, width, 3]: rectangles, text in a built-in font, panels and
// legends. Everything is clipped to the image.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/handle.h"

namespace models {

using Color = std::array<std::uint8_t, 3>;

/// Colours that are easy to tell apart, in an endless order.
Color palette(std::int64_t index);
/// Black or white, whichever is legible on `background`.
Color ink_on(Color background);

/// Pixels [x, x + width) x [y, y + height).
struct Rect {
  std::int64_t x = 0, y = 0, width = 0, height = 0;
};

/// An image that can be drawn on. `alpha` 1 covers, 0 leaves what is there.
class Canvas {
 public:
  /// Draws on a copy of a u8 image [height, width, 3].
  explicit Canvas(const tensor::Tensor& image);

  std::int64_t height() const { return image_.shape(0); }
  std::int64_t width() const { return image_.shape(1); }
  const tensor::Tensor& image() const { return image_; }

  /// Another image with its upper left corner at (x, y).
  void paste(std::int64_t x, std::int64_t y, const tensor::Tensor& image);
  void fill(const Rect& area, Color color, double alpha = 1);
  /// The outline of `box`; `thickness` pixels inwards.
  void outline(const Rect& box, Color color, std::int64_t thickness = 1);
  /// One line of ASCII (other letters show as '?'), its upper left corner at (x, y).
  void text(std::int64_t x, std::int64_t y, std::string_view line, Color color,
            std::int64_t scale = 1);
  /// A line of text on a filled rectangle with a margin, moved so that it stays inside the image.
  /// Returns the rectangle.
  Rect tag(std::int64_t x, std::int64_t y, std::string_view line, Color background,
           std::int64_t scale = 1);

 private:
  tensor::Tensor image_;
};

/// The extent of a line of text without a margin.
std::int64_t text_width(std::string_view line, std::int64_t scale = 1);
std::int64_t text_height(std::int64_t scale = 1);
/// The line, shortened with ".." if it is wider than `width`.
std::string shortened(std::string_view line, std::int64_t width, std::int64_t scale = 1);
/// A scale at which text is legible on an image of this size.
std::int64_t text_scale(std::int64_t height, std::int64_t width);

struct LegendEntry {
  Color color;
  std::string text;
};
/// `image` with a dark panel below that lists the entries: a colour swatch and a text each, in as
/// many columns as fit. A narrow image is widened so that the longest text fits.
tensor::Tensor with_legend(const tensor::Tensor& image, const std::vector<LegendEntry>& entries);

/// The image without its colours: Rec. 601 luma in every channel, so that a colour laid over it
/// keeps its hue.
tensor::Tensor grey(const tensor::Tensor& image);

/// image * (1 - alpha) + other * alpha, rounded; both u8 [H, W, 3].
tensor::Tensor blend(const tensor::Tensor& image, const tensor::Tensor& other, double alpha);

}  // namespace models

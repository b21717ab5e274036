// PNG (W3C's specification, third edition): what the chunks of a file say, and how its bytes are
// predicted from their neighbours.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "src/io/image_format.h"

namespace tensor {

struct Png {
  std::int64_t width = 0, height = 0;
  int depth = 0, colour = 0, channels = 0;  // bits of a sample; type; samples, alpha among them
  bool interlaced = false;
  /// What the first sample of a pixel stands for where it stands for a colour: the palette, or
  /// greys. Black where the file has no entry, as in libpng and Pillow.
  std::array<Rgb, 256> colours{};
  std::vector<Bytes> data;  // deflated, in parts
  Metadata metadata;

  bool is_rgb() const { return channels >= 3; }
  bool has_palette() const { return colour == 3; }
};

/// Checks the file from beginning to end. What the pixels do not need is passed over, as libpng
/// does: ancillary chunks (tRNS among them, for alpha is dropped) whatever they hold.
Png read_png(const ImageSource& source);

/// u8 [height, width, 3]. UserError when the data are damaged or end too early.
Tensor png_pixels(const Png& png, const std::string& name);

/// The filters of a row (section 9): 0 none, 1 left, 2 above, 3 their mean, 4 Paeth's.
inline constexpr int kPngFilters = 5;

/// Undoes a filter in place; `above` is the row before, `step` the bytes from a pixel to the next.
void unfilter_row(int filter, std::span<std::uint8_t> row, std::span<const std::uint8_t> above,
                  std::size_t step);
/// Applies one.
void filter_row(int filter, std::span<const std::uint8_t> row, std::span<const std::uint8_t> above,
                std::size_t step, std::span<std::uint8_t> out);

}  // namespace tensor

// What the readers of the image formats have in common. Each checks the file's structure and claims
// before pixels are decoded, so that no memory is taken that the file's own size or `max_pixels`
// does not justify.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "src/io/bytes.h"
#include "src/io/orientation.h"
#include "tensor/handle.h"

namespace tensor {

using Rgb = std::array<std::uint8_t, 3>;

struct DecodedImage {
  Tensor pixels;  // u8 [height, width, 3]
  Metadata metadata = {};
};

struct ImageSource {
  Bytes bytes;
  const std::string& name;
  std::int64_t max_pixels;
};

/// UserError when an image of that size is empty or larger than allowed.
void check_pixels(const ImageSource& source, std::int64_t width, std::int64_t height);

DecodedImage decode_jpeg(const ImageSource& source);
DecodedImage decode_png(const ImageSource& source);
DecodedImage decode_bmp(const ImageSource& source);
DecodedImage decode_webp(const ImageSource& source);

/// A PNG file of u8 pixels without gaps, of one channel or three. UserError naming `where` when
/// they are too many.
std::string png_of_rows(const Tensor& rows, const std::string& where);

}  // namespace tensor

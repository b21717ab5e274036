// What the readers of the image formats have in common. Each checks the file's structure and claims
// before a decoder sees it, so that no memory is taken that the file's own size does not justify.
#pragma once

#include <cstdint>
#include <string>

#include "src/io/bytes.h"
#include "tensor/handle.h"

namespace tensor {

struct DecodedImage {
  Tensor pixels;  // u8 [height, width, 3]
  int orientation = 1;
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

}  // namespace tensor

// PNG (W3C's specification, third edition): what the chunks of a file say, and its pixels.
#pragma once

#include <vector>

#include "src/io/image_format.h"

namespace tensor {

struct Png {
  std::int64_t width = 0, height = 0;
  int depth = 0, colour = 0, channels = 0;  // bits of a sample; type; samples, alpha among them
  bool interlaced = false;
  Bytes header;  // the chunk IHDR as it stands
  /// 256 colours, if the image takes its own from a palette: black where the file has no entry, as
  /// in libpng and Pillow.
  std::string palette;
  std::vector<Bytes> data;  // deflated, in parts
  Metadata metadata;

  bool has_palette() const { return colour == 3; }
};

/// Checks the file from beginning to end. What the pixels do not need is passed over, as libpng
/// does: ancillary chunks (tRNS among them, for alpha is dropped) whatever they hold.
Png read_png(const ImageSource& source);

/// The pixels of a PNG file that holds what they need and nothing else: u8 [height, width, 3].
Tensor stb_pixels(const std::string& file, const std::string& name);

}  // namespace tensor

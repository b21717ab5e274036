// stb_image and stb_image_write, kept to one file of ours: they are C and know neither limits nor
// exceptions.
#pragma once

#include <cstdint>
#include <string>

#include "src/io/image_format.h"

namespace tensor {

inline constexpr std::int64_t kMaxStbSide = 16384;

/// Decodes a PNG or BMP file of that size to u8 [height, width, 3], within a budget of memory that
/// follows from the size. UserError when it is damaged.
Tensor stb_decode(const ImageSource& source, std::int64_t width, std::int64_t height);

/// A PNG file of u8 pixels without gaps. UserError naming `where` when that is too large.
std::string stb_encode_png(const std::uint8_t* pixels, std::int64_t width, std::int64_t height,
                           int channels, const std::string& where);

}  // namespace tensor

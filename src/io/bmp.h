// What the header of a BMP file says.
#pragma once

#include <array>
#include <vector>

#include "src/io/image_format.h"

namespace tensor {

struct Bmp {
  std::int64_t width = 0, height = 0, bits = 0;  // bits of a pixel
  bool from_top = false;                         // the file's first row is the image's first
  std::uint64_t compression = 0;
  std::array<Rgb, 256> colours{};        // of up to 8 bits; black where the file has none
  std::array<std::uint32_t, 3> masks{};  // of more: the bits that make red, green and blue
  std::size_t begin = 0;                 // of the pixels in the file
  Bytes pixels;
};

/// A byte for every pixel, row by row as in the file, of run-length coded ones; pixels that the
/// code leaves out are 0. UserError where the file ends first.
std::vector<std::byte> unpack_bmp_runs(const ImageSource& source, const Bmp& bmp);

}  // namespace tensor

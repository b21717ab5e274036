#include "src/io/exif.h"

#include "tensor/ops.h"

namespace tensor {

int exif_orientation(Bytes tiff) {
  constexpr std::uint64_t kOrientation = 0x0112, kShort = 3, kLong = 4;
  constexpr std::size_t kEntrySize = 12;
  if (tiff.size() < 8) return 1;
  const bool little = tiff[0] == std::byte{'I'};
  const auto number = [&](std::size_t at, std::size_t width) {
    return little ? little_endian(tiff, at, width) : big_endian(tiff, at, width);
  };
  if (tiff[0] != tiff[1] || (!little && tiff[0] != std::byte{'M'}) || number(2, 2) != 42) return 1;
  const auto directory = static_cast<std::size_t>(number(4, 4));
  if (directory > tiff.size() || tiff.size() - directory < 2) return 1;
  const auto count = static_cast<std::size_t>(number(directory, 2));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = directory + 2 + i * kEntrySize;
    if (tiff.size() - directory < 2 + (i + 1) * kEntrySize) return 1;
    if (number(at, 2) != kOrientation) continue;
    const std::uint64_t type = number(at + 2, 2);
    if ((type != kShort && type != kLong) || number(at + 4, 4) != 1) return 1;
    const std::uint64_t value = number(at + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Tensor turned_upright(const Tensor& image, int orientation) {
  const Tensor upright = orientation >= 5 ? image.transpose({1, 0, 2}) : image;
  switch (orientation) {
    case 2:
    case 6:
      return flip(upright, 1);
    case 3:
    case 7:
      return flip(upright, {0, 1});
    case 4:
    case 8:
      return flip(upright, 0);
    default:
      return upright;
  }
}

}  // namespace tensor

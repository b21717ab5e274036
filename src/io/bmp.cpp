// BMP: Windows' and OS/2's headers, plain and run-length coded pixels of 1 to 32 bits, read as
// Pillow 13 reads them.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "src/io/bmp.h"
#include "tensor/creation.h"
#include "tensor/error.h"

namespace tensor {
namespace {

enum BmpCompression : std::uint64_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };
constexpr std::size_t kFileHeader = 14, kOs2Header = 12, kMasksBegin = 54;

/// A number of the file; UserError where it ends before.
std::uint64_t bmp_number(const ImageSource& source, std::size_t at, std::size_t width) {
  if (source.bytes.size() < at + width)
    fail(source.name, "is cut short: a BMP file of ", source.bytes.size(), " bytes");
  return little_endian(source.bytes, at, width);
}

void check_bmp_kind(const ImageSource& source, const Bmp& bmp) {
  const std::int64_t bits = bmp.bits;
  if (bits != 1 && bits != 4 && bits != 8 && bits != 16 && bits != 24 && bits != 32)
    fail(source.name, "is a BMP file of ", bits,
         " bits per pixel, need 1, 4, 8, 16, 24 or 32: convert it first");
  const bool known = bmp.compression == kPlain || (bmp.compression == kRle8 && bits == 8) ||
                     (bmp.compression == kRle4 && bits == 4) ||
                     (bmp.compression == kBitFields && bits >= 16);
  if (!known)
    fail(source.name, "is a BMP file of ", bits, " bits per pixel with compression ",
         bmp.compression,
         ", need 0 (none), 1 for 8 bits, 2 for 4 bits or 3 for 16 bits and more: "
         "convert it first");
}

/// The bits that make red, green and blue.
std::array<std::uint32_t, 3> read_masks(const ImageSource& source, const Bmp& bmp) {
  std::array<std::uint32_t, 3> masks{};
  if (bmp.compression == kBitFields)
    for (std::size_t c = 0; c < 3; ++c)
      masks[c] = static_cast<std::uint32_t>(bmp_number(source, kMasksBegin + 4 * c, 4));
  if (masks == std::array<std::uint32_t, 3>{})
    return bmp.bits == 16 ? std::array<std::uint32_t, 3>{0x7c00, 0x03e0, 0x001f}
                          : std::array<std::uint32_t, 3>{0xff0000, 0xff00, 0xff};
  for (const std::uint32_t mask : masks) {
    const std::uint32_t shifted = mask == 0 ? 0 : mask >> std::countr_zero(mask);
    if (mask == 0 || (shifted & (shifted + 1)) != 0)
      fail(source.name, "is a BMP file with the colour masks ", masks[0], ", ", masks[1], " and ",
           masks[2], ", need consecutive bits for each: convert it first");
  }
  return masks;
}

/// Palette and pixels begin behind the header.
void read_bmp_body(const ImageSource& source, std::size_t header, Bmp& bmp) {
  const Bytes bytes = source.bytes;
  const bool old = header == kOs2Header;
  const std::size_t entry = old ? 3 : 4;
  std::size_t at = kFileHeader + header, begin = bmp_number(source, 10, 4);
  if (bmp.bits <= 8) {
    std::size_t colours = old ? 0 : bmp_number(source, 46, 4);
    if (colours == 0) colours = std::size_t{1} << bmp.bits;
    for (std::size_t i = 0; i < std::min(colours, bmp.colours.size()); ++i)
      for (std::size_t c = 0; c < 3 && at + entry * i + c < bytes.size(); ++c)
        bmp.colours[i][2 - c] = std::to_integer<std::uint8_t>(bytes[at + entry * i + c]);
    if (begin == at) begin += entry * colours;  // a wrong offset: that is where the palette is
    at += entry * colours;
  } else {
    bmp.masks = read_masks(source, bmp);
    if (bmp.compression == kBitFields) at = std::max<std::size_t>(at, kMasksBegin + 12);
  }
  if (begin == 0) begin = at;
  if (begin < kFileHeader + header)
    fail(source.name, "is damaged: its BMP pixels begin at byte ", begin, ", in the header");
  bmp.begin = begin;
  bmp.pixels = bytes.subspan(std::min(begin, bytes.size()));
}

Bmp read_bmp(const ImageSource& source) {
  const std::size_t header = bmp_number(source, kFileHeader, 4);
  constexpr std::size_t kHeaders[] = {kOs2Header, 40, 52, 56, 64, 108, 124};
  if (std::ranges::find(kHeaders, header) == std::end(kHeaders))
    fail(source.name, "is a BMP file with a header of ", header,
         " bytes, need 12, 40, 52, 56, 64, 108 or 124: convert it first");
  bmp_number(source, kFileHeader + header - 1, 1);  // the header is there
  const bool old = header == kOs2Header;
  const auto side = [&](std::size_t at) {
    return old ? static_cast<std::int64_t>(bmp_number(source, at, 2))
               : std::int64_t{static_cast<std::int32_t>(bmp_number(source, at, 4))};
  };
  Bmp bmp;
  bmp.width = side(18);
  bmp.height = side(old ? 20 : 22);
  bmp.from_top = bmp.height < 0;
  bmp.height = std::abs(bmp.height);
  bmp.bits = static_cast<std::int64_t>(bmp_number(source, old ? 24 : 28, 2));
  bmp.compression = old ? kPlain : bmp_number(source, 30, 4);
  check_pixels(source, bmp.width, bmp.height);
  check_bmp_kind(source, bmp);
  read_bmp_body(source, header, bmp);
  return bmp;
}

/// Colours of any bits as bytes, cut as Pillow cuts them.
Rgb masked(std::uint64_t pixel, const std::array<std::uint32_t, 3>& masks) {
  Rgb colour;
  for (std::size_t c = 0; c < 3; ++c) {
    const int shift = std::countr_zero(masks[c]);
    const std::uint64_t most = masks[c] >> shift;
    const std::uint64_t level = (pixel & masks[c]) >> shift;
    colour[c] = static_cast<std::uint8_t>(most == 255 ? level : level * 255 / most);
  }
  return colour;
}

Rgb bmp_colour(const Bmp& bmp, const std::byte* row, std::int64_t x) {
  if (bmp.bits <= 8) {
    const std::int64_t bit = x * bmp.bits;
    const auto byte = std::to_integer<std::size_t>(row[bit / 8]);
    return bmp.colours[byte >> (8 - bmp.bits - bit % 8) & ((std::size_t{1} << bmp.bits) - 1)];
  }
  const auto size = static_cast<std::size_t>(bmp.bits / 8);
  return masked(little_endian({row + x * static_cast<std::int64_t>(size), size}, 0, size),
                bmp.masks);
}

}  // namespace

DecodedImage decode_bmp(const ImageSource& source) {
  Bmp bmp = read_bmp(source);
  std::vector<std::byte> unpacked;
  std::int64_t row_bytes = (bmp.width * bmp.bits + 7) / 8, stride = (row_bytes + 3) / 4 * 4;
  if (bmp.compression == kRle8 || bmp.compression == kRle4) {
    unpacked = unpack_bmp_runs(source, bmp);
    bmp.pixels = unpacked;
    bmp.bits = 8;
    stride = row_bytes = bmp.width;
  }
  const std::int64_t needed = stride * (bmp.height - 1) + row_bytes;  // the last row is not filled
  if (needed > std::ssize(bmp.pixels))
    fail(source.name, "is cut short: ", bmp.width, " x ", bmp.height, " pixels of ", bmp.bits,
         " bits take ", needed, " bytes from byte ", bmp.begin, " on, the file has ",
         source.bytes.size());
  Tensor pixels = empty({bmp.height, bmp.width, 3}, u8);
  std::uint8_t* target = pixels.mutable_data<std::uint8_t>();
  for (std::int64_t y = 0; y < bmp.height; ++y) {
    const std::byte* row = bmp.pixels.data() + (bmp.from_top ? y : bmp.height - 1 - y) * stride;
    for (std::int64_t x = 0; x < bmp.width; ++x, target += 3) {
      const Rgb colour = bmp_colour(bmp, row, x);
      std::copy(colour.begin(), colour.end(), target);
    }
  }
  return {pixels};
}

}  // namespace tensor

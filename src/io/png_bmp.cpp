// PNG and BMP: the structure and claims of the file are checked here, then stb_image decodes it.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "src/io/bytes.h"
#include "src/io/exif.h"
#include "src/io/image_format.h"
#include "src/io/source.h"
#include "src/io/stb.h"
#include "tensor/error.h"

namespace tensor {
namespace {

struct Chunk {
  std::string_view kind;
  Bytes data;
};

class ChunkReader {
 public:
  explicit ChunkReader(const ImageSource& source) : source_(source) {}

  Chunk next() {
    constexpr std::size_t kAround = 12;  // length, kind and checksum
    const Bytes rest = source_.bytes.subspan(at_);
    const std::uint64_t length = rest.size() < kAround ? 0 : big_endian(rest, 0, 4);
    if (rest.size() < kAround || length > rest.size() - kAround)
      fail(source_.name, "is cut short: a PNG chunk at byte ", at_, " is not complete");
    const auto size = static_cast<std::size_t>(length);
    const Bytes checked = rest.subspan(4, 4 + size);
    const auto checksum =
        crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
    const std::string_view kind(reinterpret_cast<const char*>(checked.data()), 4);
    if (checksum != big_endian(rest, 8 + size, 4))
      fail(source_.name, "is damaged: the checksum of the PNG chunk ", in_quotes(kind), " at byte ",
           at_, " does not agree");
    at_ += kAround + size;
    return {kind, checked.subspan(4)};
  }

 private:
  const ImageSource& source_;
  std::size_t at_ = 8;  // after the signature
};

struct PngHeader {
  std::int64_t width, height, row_bytes;
};

PngHeader read_png_header(const ImageSource& source, const Chunk& chunk) {
  if (chunk.kind != "IHDR" || chunk.data.size() != 13)
    fail(source.name, "is damaged: the PNG file begins with ", in_quotes(chunk.kind),
         ", need IHDR");
  const auto width = static_cast<std::int64_t>(big_endian(chunk.data, 0, 4));
  const auto height = static_cast<std::int64_t>(big_endian(chunk.data, 4, 4));
  const auto depth = static_cast<std::int64_t>(big_endian(chunk.data, 8, 1));
  const auto colour = big_endian(chunk.data, 9, 1);
  constexpr std::int64_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  const std::int64_t channels = colour < std::size(kChannels) ? kChannels[colour] : 0;
  const bool sound =
      channels != 0 && (depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16);
  if (!sound)
    fail(source.name, "is damaged: PNG colour type ", colour, " of ", depth,
         " bits does not exist");
  check_pixels(source, width, height);
  return {width, height, (width * channels * depth + 7) / 8};
}

void check_side(const ImageSource& source, std::int64_t width, std::int64_t height) {
  if (std::max(width, height) > kMaxStbSide)
    fail(source.name, "is ", width, " x ", height, " pixels, need at most ", kMaxStbSide,
         " each way");
}

}  // namespace

DecodedImage decode_png(const ImageSource& source) {
  ChunkReader chunks(source);
  const PngHeader header = read_png_header(source, chunks.next());
  check_side(source, header.width, header.height);
  int orientation = 1;
  std::int64_t packed = 0;
  while (true) {
    const Chunk chunk = chunks.next();
    if (chunk.kind == "IEND") break;
    if (chunk.kind == "IDAT") packed += static_cast<std::int64_t>(chunk.data.size());
    if (chunk.kind == "eXIf") orientation = exif_orientation(chunk.data);
    const bool optional = (chunk.kind.front() & 0x20) != 0;
    if (!optional && chunk.kind != "IDAT" && chunk.kind != "PLTE")
      fail(source.name, "has the PNG chunk ", in_quotes(chunk.kind),
           ", which this library does not know");
  }
  if (header.height * header.row_bytes / kMaxDeflateRatio > packed)
    fail(source.name, "claims ", header.width, " x ", header.height, " pixels, which its ", packed,
         " bytes of image data cannot hold");
  return {stb_decode(source, header.width, header.height), orientation};
}

DecodedImage decode_bmp(const ImageSource& source) {
  const Bytes bytes = source.bytes;
  if (bytes.size() < 34) fail(source.name, "is cut short: a BMP file of ", bytes.size(), " bytes");
  const auto data_begin = static_cast<std::int64_t>(little_endian(bytes, 10, 4));
  const bool old = little_endian(bytes, 14, 4) == 12;  // OS/2's header
  const auto side = [&](std::size_t at) {
    return old ? static_cast<std::int64_t>(little_endian(bytes, at, 2))
               : std::int64_t{static_cast<std::int32_t>(little_endian(bytes, at, 4))};
  };
  const std::int64_t width = side(18),
                     height = std::abs(side(old ? 20 : 22));  // negative: from the top down
  const auto bits = static_cast<std::int64_t>(little_endian(bytes, old ? 24 : 28, 2));
  check_pixels(source, width, height);
  check_side(source, width, height);
  // stb rounds the 16-bit kinds otherwise than Pillow does, and hardly anyone has them.
  if (bits != 1 && bits != 4 && bits != 8 && bits != 24 && bits != 32)
    fail(source.name, "is a BMP file of ", bits, " bits per pixel, need 1, 4, 8, 24 or 32");
  const std::int64_t needed = (width * bits + 31) / 32 * 4 * height;
  const auto size = static_cast<std::int64_t>(bytes.size());
  if (data_begin > size || needed > size - data_begin)
    fail(source.name, "is cut short: ", width, " x ", height, " pixels of ", bits, " bits take ",
         needed, " bytes from byte ", data_begin, " on, the file has ", size);
  return {stb_decode(source, width, height), 1};
}

}  // namespace tensor

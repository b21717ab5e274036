// WebP: the chunks of the container are read here (RFC 9649), libwebp decodes the picture.
#include <algorithm>

#include "src/core/shared_library.h"
#include "src/io/image_format.h"
#include "src/io/source.h"
#include "tensor/creation.h"
#include "tensor/error.h"

namespace tensor {
namespace {

// webp/decode.h declares them so.
using WebPGetInfo = int(const std::uint8_t* data, std::size_t size, int* width, int* height);
using WebPDecodeRGBInto = std::uint8_t*(const std::uint8_t* data, std::size_t size,
                                        std::uint8_t* out, std::size_t out_size, int stride);

struct WebpChunk {
  std::string_view kind;
  Bytes data, whole;  // without and with its header
};

WebpChunk next_webp_chunk(const ImageSource& source, Bytes& rest) {
  constexpr std::size_t kAround = 8;  // kind and length
  const std::uint64_t size = rest.size() < kAround ? 0 : little_endian(rest, 4, 4);
  if (rest.size() < kAround || size > rest.size() - kAround)
    fail(source.name, "is cut short: a WebP chunk at byte ", rest.data() - source.bytes.data(),
         " is not complete");
  const WebpChunk chunk{as_text(rest.first(4)), rest.subspan(kAround, size),
                        rest.first(kAround + size)};
  rest = rest.subspan(std::min<std::size_t>(kAround + size + size % 2, rest.size()));
  return chunk;
}

/// What the chunks say: the first picture, where it lies on the canvas, and what is said of it.
struct Webp {
  Bytes picture;
  std::int64_t left = 0, top = 0, width = 0, height = 0;  // the canvas; 0: as large as the picture
  Metadata metadata;
};

void read_webp_frame(const ImageSource& source, Bytes frame, Webp& webp) {
  constexpr std::size_t kFrameHeader = 16;
  if (frame.size() < kFrameHeader)
    fail(source.name, "is damaged: a WebP frame of ", frame.size(), " bytes");
  webp.left = 2 * static_cast<std::int64_t>(little_endian(frame, 0, 3));
  webp.top = 2 * static_cast<std::int64_t>(little_endian(frame, 3, 3));
  for (Bytes rest = frame.subspan(kFrameHeader); !rest.empty() && webp.picture.empty();)
    if (const WebpChunk chunk = next_webp_chunk(source, rest); chunk.kind.starts_with("VP8"))
      webp.picture = chunk.whole;
}

Webp read_webp(const ImageSource& source) {
  constexpr std::size_t kSizeEnd = 8, kStart = 12;  // "RIFF", the size of the rest, "WEBP"
  const std::uint64_t size = little_endian(source.bytes, 4, 4);
  if (size > source.bytes.size() - kSizeEnd)
    fail(source.name, "is cut short: a WebP file of ", source.bytes.size() - kSizeEnd,
         " bytes behind its size, which says ", size);
  constexpr std::uint64_t kHasXmp = 4, kHasExif = 8;
  std::uint64_t flags = 0;
  Webp webp;
  const Bytes body = source.bytes.first(std::max<std::size_t>(kSizeEnd + size, kStart));
  for (Bytes rest = body.subspan(kStart); !rest.empty();) {
    const WebpChunk chunk = next_webp_chunk(source, rest);
    if (chunk.kind == "VP8X") {
      if (chunk.data.size() < 10) fail(source.name, "is damaged: its WebP header is cut short");
      flags = little_endian(chunk.data, 0, 1);
      webp.width = static_cast<std::int64_t>(little_endian(chunk.data, 4, 3)) + 1;
      webp.height = static_cast<std::int64_t>(little_endian(chunk.data, 7, 3)) + 1;
    } else if (chunk.kind == "ANMF" && webp.picture.empty()) {
      read_webp_frame(source, chunk.data, webp);
    } else if ((chunk.kind == "VP8 " || chunk.kind == "VP8L") && webp.picture.empty()) {
      webp.picture = chunk.whole;
    } else if (chunk.kind == "EXIF" && (flags & kHasExif) != 0 && !webp.metadata.exif) {
      webp.metadata.exif = as_text(chunk.data);
    } else if (chunk.kind == "XMP " && (flags & kHasXmp) != 0 && webp.metadata.xmp.empty()) {
      webp.metadata.xmp = as_text(chunk.data);
    }
  }
  if (webp.picture.empty()) fail(source.name, "is damaged: a WebP file without a picture");
  return webp;
}

}  // namespace

DecodedImage decode_webp(const ImageSource& source) {
  Webp webp = read_webp(source);
  if (webp.width > 0) check_pixels(source, webp.width, webp.height);
  const SharedLibrary library(source.name + ": libwebp, which decodes WebP images",
                              {"libwebp.so.7", "libwebp.so"},
                              "install it (Debian: libwebp-dev), or convert the image first");
  const auto* picture = reinterpret_cast<const std::uint8_t*>(webp.picture.data());
  int width = 0, height = 0;
  if (library.function<WebPGetInfo>("WebPGetInfo")(picture, webp.picture.size(), &width, &height) ==
      0)
    fail(source.name, "is damaged: libwebp finds no picture in it");
  if (webp.width == 0) {
    webp.width = width;
    webp.height = height;
    check_pixels(source, width, height);
  }
  if (webp.left + width > webp.width || webp.top + height > webp.height)
    fail(source.name, "is damaged: a WebP picture of ", width, " x ", height, " pixels at ",
         webp.left, ", ", webp.top, " on a canvas of ", webp.width, " x ", webp.height);
  // Pillow shows the first picture of several so: what it leaves free is black.
  Tensor pixels = zeros({webp.height, webp.width, 3}, u8);
  const std::int64_t begin = (webp.top * webp.width + webp.left) * 3;
  if (!library.function<WebPDecodeRGBInto>("WebPDecodeRGBInto")(
          picture, webp.picture.size(), pixels.mutable_data<std::uint8_t>() + begin,
          static_cast<std::size_t>(pixels.size() - begin), static_cast<int>(webp.width) * 3))
    fail(source.name, "is damaged: libwebp cannot decode it");
  return {pixels, std::move(webp.metadata)};
}

}  // namespace tensor

// Images: which format a file has, and what is done with every format alike.
#include <algorithm>
#include <string_view>

#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/image_format.h"
#include "src/io/source.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {

namespace {

using namespace std::string_view_literals;

/// By a file's first bytes, of which those that stand for anything are '?'. Without `decode` it is
/// one that this library does not read.
struct Format {
  std::string_view start, name;
  DecodedImage (*decode)(const ImageSource&) = nullptr;
};
constexpr Format kFormats[] = {{"\x89PNG\r\n\x1a\n", "PNG", decode_png},
                               {"\xff\xd8\xff", "JPEG", decode_jpeg},
                               {"BM", "BMP", decode_bmp},
                               {"RIFF????WEBP", "WebP", decode_webp},
                               {"GIF8", "GIF"},
                               {"II*\0"sv, "TIFF"},
                               {"MM\0*"sv, "TIFF"},
                               {"II+\0"sv, "TIFF"},
                               {"MM\0+"sv, "TIFF"},
                               {"????ftyphei", "HEIC"},
                               {"????ftyphev", "HEIC"},
                               {"????ftypmif1", "HEIF"},
                               {"????ftypavi", "AVIF"},
                               {"%PDF-", "PDF"},
                               {"\xff\x0a", "JPEG XL"},
                               {"\0\0\0\x0cJXL "sv, "JPEG XL"},
                               {"\0\0\0\x0cjP  "sv, "JPEG 2000"},
                               {"\xff\x4f\xff\x51", "JPEG 2000"},
                               {"8BPS", "PSD"},
                               {"\0\0\1\0"sv, "ICO"},
                               {"\x8aMNG", "MNG"}};

const Format* find_format(std::string_view text) {
  for (const Format& format : kFormats)
    if (text.size() >= format.start.size() &&
        std::equal(format.start.begin(), format.start.end(), text.begin(),
                   [](char want, char got) { return want == '?' || want == got; }))
      return &format;
  return nullptr;
}

void check_size(const std::string& name, std::int64_t bytes) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (bytes > kMost)
    fail(name, "has ", bytes, " bytes, more than the ", kMost, " that an image file may have");
}

}  // namespace

void check_pixels(const ImageSource& source, std::int64_t width, std::int64_t height) {
  if (width <= 0 || height <= 0)
    fail(source.name, "is damaged: it is ", width, " x ", height, " pixels");
  if (width > source.max_pixels / height)
    fail(source.name, "is ", width, " x ", height, " pixels, more than the ", source.max_pixels,
         " that are allowed: make it smaller, or allow more (max_pixels, or a program's "
         "--max-pixels)");
}

std::string_view image_format(std::span<const std::byte> start) {
  const Format* format = find_format(as_text(start));
  return format ? format->name : "";
}

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    std::int64_t max_pixels) {
  constexpr const char* kNeed = "need PNG, JPEG, BMP or WebP";
  check_size(name, static_cast<std::int64_t>(bytes.size()));
  if (bytes.empty()) fail(name, "is empty: ", kNeed);
  const Format* format = find_format(as_text(bytes));
  if (!format) fail(name, "is no image that this library reads: ", kNeed);
  if (!format->decode) fail(name, "is ", format->name, ": ", kNeed, "; convert it first");
  const DecodedImage image = format->decode({bytes, name, max_pixels});
  return rowed(turned_upright(image.pixels, orientation_of(image.metadata)), name);
}

Tensor load_image(const std::string& path, std::int64_t max_pixels) {
  const Source file = Source::open(path);
  check_size(path, file.size());
  return decode_image(file.read_bytes(0, file.size()), path, max_pixels);
}

std::string encode_png(const Tensor& image, const std::string& name) {
  const Tensor rows = rowed(image, name + ": the image");
  const bool colour = rows.rank() == 3 && rows.shape(2) == 3;
  if (rows.dtype() != u8 || (!colour && rows.rank() != 2) || rows.size() == 0)
    fail(name, "got ", rows.type(), ", need u8(height, width, 3) or u8(height, width), not empty");
  return png_of_rows(rows, name);
}

void save_png(const std::string& path, const Tensor& image) {
  const std::string png = encode_png(image, path);
  AtomicFile file(path);
  file.write(png);
  file.commit();
}

}  // namespace tensor

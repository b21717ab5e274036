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

/// By its first bytes, of which those that stand for anything are '?'.
struct Format {
  std::string_view start;
  DecodedImage (*decode)(const ImageSource&);
};
constexpr Format kFormats[] = {
    {"\x89PNG\r\n\x1a\n", decode_png},
    {"\xff\xd8\xff", decode_jpeg},
    {"BM", decode_bmp},
    {"RIFF????WEBP", decode_webp},
};

// Other files that are given as images.
struct Foreign {
  std::string_view start, name;
};
constexpr Foreign kForeignFormats[] = {{"GIF8", "GIF"},
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

bool starts_as(std::string_view text, std::string_view start) {
  return text.size() >= start.size() &&
         std::equal(start.begin(), start.end(), text.begin(),
                    [](char want, char got) { return want == '?' || want == got; });
}

[[noreturn]] void fail_foreign(std::string_view text, const std::string& name) {
  constexpr const char* kNeed = "need PNG, JPEG, BMP or WebP";
  if (text.empty()) fail(name, "is empty: ", kNeed);
  for (const Foreign& foreign : kForeignFormats)
    if (starts_as(text, foreign.start))
      fail(name, "is ", foreign.name, ": ", kNeed, "; convert it first");
  fail(name, "is no image that this library reads: ", kNeed);
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

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    std::int64_t max_pixels) {
  check_size(name, static_cast<std::int64_t>(bytes.size()));
  const std::string_view text = as_text(bytes);
  for (const Format& format : kFormats)
    if (starts_as(text, format.start)) {
      const DecodedImage image = format.decode({bytes, name, max_pixels});
      return rowed(turned_upright(image.pixels, orientation_of(image.metadata)), name);
    }
  fail_foreign(text, name);
}

Tensor load_image(const std::string& path, std::int64_t max_pixels) {
  const Source file = Source::open(path);
  check_size(path, file.size());
  return decode_image(file.read_bytes(0, file.size()), path, max_pixels);
}

void save_png(const std::string& path, const Tensor& image) {
  const Tensor rows = rowed(image, path + ": the image");
  const bool colour = rows.rank() == 3 && rows.shape(2) == 3;
  if (rows.dtype() != u8 || (!colour && rows.rank() != 2) || rows.size() == 0)
    fail(path, "got ", rows.type(), ", need u8(height, width, 3) or u8(height, width), not empty");
  const std::string png = encode_png(rows, path);
  AtomicFile file(path);
  file.write(png);
  file.commit();
}

}  // namespace tensor

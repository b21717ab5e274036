// Images: which format a file has, and what is done with every format alike.
#include <algorithm>
#include <array>
#include <string_view>

#include "src/io/atomic_file.h"
#include "src/io/elements.h"
#include "src/io/exif.h"
#include "src/io/image_format.h"
#include "src/io/source.h"
#include "src/io/stb.h"
#include "tensor/error.h"
#include "tensor/io.h"

namespace tensor {

namespace {

struct Format {
  std::string_view start;
  DecodedImage (*decode)(const ImageSource&);
};
constexpr Format kFormats[] = {
    {"\x89PNG\r\n\x1a\n", decode_png},
    {"\xff\xd8\xff", decode_jpeg},
    {"BM", decode_bmp},
};

// Other files that are given as images.
struct Foreign {
  std::size_t offset;
  std::string_view start, name;
};
using namespace std::string_view_literals;
constexpr Foreign kForeignFormats[] = {{8, "WEBP", "WebP"},     {0, "GIF8", "GIF"},
                                       {0, "II*\0"sv, "TIFF"},  {0, "MM\0*"sv, "TIFF"},
                                       {4, "ftypheic", "HEIC"}, {4, "ftypavif", "AVIF"},
                                       {0, "%PDF-", "PDF"}};

[[noreturn]] void fail_foreign(std::string_view text, const std::string& name) {
  constexpr const char* kNeed = "need PNG, JPEG or BMP";
  if (text.empty()) fail(name, "is empty: ", kNeed);
  for (const Foreign& foreign : kForeignFormats)
    if (text.substr(std::min(foreign.offset, text.size())).starts_with(foreign.start))
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
         " that are allowed");
}

Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                    std::int64_t max_pixels) {
  check_size(name, static_cast<std::int64_t>(bytes.size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Format& format : kFormats)
    if (text.starts_with(format.start)) {
      const DecodedImage image = format.decode({bytes, name, max_pixels});
      return rowed(turned_upright(image.pixels, image.orientation), name);
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
  const std::string png =
      stb_encode_png(rows.data<std::uint8_t>(), rows.shape(1), rows.shape(0), colour ? 3 : 1, path);
  AtomicFile file(path);
  file.write(png);
  file.commit();
}

}  // namespace tensor

// The pixels of a PNG file. Its data are unpacked and checked here, for stb_image unpacks without a
// bound, checks no sums and leaves unset what a palette lacks. It gets a file without flaws.
#include <zlib.h>

#include <algorithm>
#include <span>

#include "src/io/png.h"
#include "tensor/error.h"

namespace tensor {
namespace {

class PngData {
 public:
  PngData(const std::vector<Bytes>& parts, const std::string& name) : parts_(parts), name_(name) {
    if (inflateInit(&stream_) != Z_OK) fail(name_, "cannot be unpacked: out of memory");
  }
  PngData(const PngData&) = delete;
  PngData& operator=(const PngData&) = delete;
  ~PngData() { inflateEnd(&stream_); }

  void read(std::span<char> out) {
    constexpr std::size_t kMost = 1 << 30;  // zlib counts in 32 bits
    while (!out.empty()) out = out.subspan(read_some(out.first(std::min(out.size(), kMost))));
  }

 private:
  bool next_part() {
    if (part_ == parts_.size()) return false;
    const Bytes part = parts_[part_++];
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(part.data()));  // only read
    stream_.avail_in = static_cast<uInt>(part.size());
    return true;
  }
  std::size_t read_some(std::span<char> out) {
    if (stream_.avail_in == 0 && !next_part()) fail_short();
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END && stream_.avail_out > 0) fail_short();
    // Z_BUF_ERROR: an empty part, there may be another.
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      fail(name_, "is damaged: its PNG image data cannot be unpacked (",
           stream_.msg ? stream_.msg : "a dictionary is asked for", ")");
    return out.size() - stream_.avail_out;
  }
  [[noreturn]] void fail_short() const {
    fail(name_, "is damaged: its PNG image data unpack to fewer bytes than its pixels take");
  }

  const std::vector<Bytes>& parts_;
  const std::string& name_;
  std::size_t part_ = 0;
  z_stream stream_{};
};

/// Every so manieth pixel, from the first on.
struct PngPass {
  std::int64_t left, top, right, down;
};
constexpr PngPass kWholePng[] = {{0, 0, 1, 1}};
constexpr PngPass kAdam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                              {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

/// The rows of all passes, each behind the number of its filter.
std::string unpacked_rows(const Png& png, const std::string& name) {
  PngData data(png.data, name);
  std::string rows;
  for (const PngPass& pass : png.interlaced ? std::span<const PngPass>(kAdam7) : kWholePng) {
    if (png.width <= pass.left || png.height <= pass.top) continue;
    const std::int64_t width = (png.width - pass.left + pass.right - 1) / pass.right,
                       height = (png.height - pass.top + pass.down - 1) / pass.down;
    const auto size = static_cast<std::size_t>(1 + (width * png.channels * png.depth + 7) / 8);
    const std::size_t begin = rows.size();
    rows.resize(begin + size * static_cast<std::size_t>(height));
    data.read(std::span(rows).subspan(begin));
    for (std::size_t at = begin; at < rows.size(); at += size)
      if (const int filter = static_cast<unsigned char>(rows[at]); filter > 4)
        fail(name, "is damaged: PNG filter ", filter, " does not exist");
  }
  return rows;
}

/// The rows in zlib's form, but not made smaller: stb_image need only copy them.
std::string stored(const std::string& rows) {
  uLongf size = compressBound(rows.size());
  std::string data(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(data.data()), &size,
                reinterpret_cast<const Bytef*>(rows.data()), rows.size(), Z_NO_COMPRESSION) != Z_OK)
    internal_error("png", "zlib's own bound does not hold");
  data.resize(size);
  return data;
}

void append_number(std::string& file, std::uint64_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(number >> shift & 0xff);
}

void append_chunk(std::string& file, std::string_view kind, std::string_view data) {
  append_number(file, data.size());
  const std::size_t begin = file.size();
  file.append(kind).append(data);
  const auto* first = reinterpret_cast<const Bytef*>(file.data() + begin);
  append_number(file, crc32_z(0, first, file.size() - begin));
}

std::string file_without_flaws(const Png& png, const std::string& name) {
  const std::string data = stored(unpacked_rows(png, name));
  std::string file = "\x89PNG\r\n\x1a\n";
  file.reserve(data.size() + 1024);
  append_chunk(file, "IHDR", as_text(png.header));
  if (png.has_palette()) append_chunk(file, "PLTE", png.palette);
  append_chunk(file, "IDAT", data);
  append_chunk(file, "IEND", "");
  return file;
}

}  // namespace

DecodedImage decode_png(const ImageSource& source) {
  Png png = read_png(source);
  // stb_image counts in int the bytes of the file and of the pixels, of up to 8 bytes each.
  constexpr std::int64_t kMostPixels = 250'000'000, kMostOfSide = 1 << 24;
  if (png.width * png.height > kMostPixels || std::max(png.width, png.height) > kMostOfSide)
    fail(source.name, "is ", png.width, " x ", png.height, " pixels, need at most ", kMostPixels,
         " in a PNG image, and ", kMostOfSide, " each way: make it smaller");
  return {stb_pixels(file_without_flaws(png, source.name), source.name), std::move(png.metadata)};
}

}  // namespace tensor

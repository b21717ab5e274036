// The pixels of a PNG file, unpacked row by row through zlib.
#include <zlib.h>

#include <algorithm>

#include "src/io/png.h"
#include "tensor/creation.h"

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

  void read(std::span<std::uint8_t> out) {
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
  std::size_t read_some(std::span<std::uint8_t> out) {
    if (stream_.avail_in == 0 && !next_part()) fail_short();
    stream_.next_out = out.data();
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

/// The upper byte of 16 bits, as Pillow has it of colours.
std::uint8_t png_sample(const std::uint8_t* row, std::int64_t index, int depth) {
  if (depth == 8) return row[index];
  if (depth == 16) return row[index * 2];
  const std::int64_t bit = index * depth;
  return static_cast<std::uint8_t>(row[bit / 8] >> (8 - depth - bit % 8) & ((1 << depth) - 1));
}

void unpack_pass(const Png& png, const PngPass& pass, PngData& data, const std::string& name,
                 std::uint8_t* pixels) {
  if (png.width <= pass.left || png.height <= pass.top) return;
  const std::int64_t width = (png.width - pass.left + pass.right - 1) / pass.right;
  const std::int64_t pixel_bits = std::int64_t{png.channels} * png.depth;
  const auto size = static_cast<std::size_t>((width * pixel_bits + 7) / 8);
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(pixel_bits / 8, 1));
  std::vector<std::uint8_t> line(1 + size), last(1 + size);  // the number of the filter, the row
  for (std::int64_t y = pass.top; y < png.height; y += pass.down) {
    data.read(line);
    if (line[0] >= kPngFilters)
      fail(name, "is damaged: PNG filter ", int{line[0]}, " does not exist");
    unfilter_row(line[0], std::span(line).subspan(1), std::span(last).subspan(1), step);
    const std::uint8_t* row = line.data() + 1;
    std::uint8_t* target = pixels + (y * png.width + pass.left) * 3;
    for (std::int64_t i = 0; i < width; ++i, target += 3 * pass.right) {
      const std::uint8_t first = png_sample(row, i * png.channels, png.depth);
      const Rgb colour = png.is_rgb() ? Rgb{first, png_sample(row, i * png.channels + 1, png.depth),
                                            png_sample(row, i * png.channels + 2, png.depth)}
                                      : png.colours[first];
      std::copy(colour.begin(), colour.end(), target);
    }
    std::swap(line, last);
  }
}

}  // namespace

Tensor png_pixels(const Png& png, const std::string& name) {
  Tensor pixels = empty({png.height, png.width, 3}, u8);
  PngData data(png.data, name);
  const std::span<const PngPass> passes =
      png.interlaced ? std::span<const PngPass>(kAdam7) : std::span<const PngPass>(kWholePng);
  for (const PngPass& pass : passes)
    unpack_pass(png, pass, data, name, pixels.mutable_data<std::uint8_t>());
  return pixels;
}

DecodedImage decode_png(const ImageSource& source) {
  Png png = read_png(source);
  return {png_pixels(png, source.name), std::move(png.metadata)};
}

}  // namespace tensor

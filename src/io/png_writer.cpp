// Writing PNG files: 8 bits, grey or RGB, each row by the filter that leaves the smallest bytes.
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "src/io/png.h"
#include "tensor/error.h"

namespace tensor {
namespace {

std::string big_endian_text(std::uint64_t number) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xff);
  return text;
}

std::string png_chunk(const std::string& kind, const std::string& data) {
  const std::string checked = kind + data;
  const auto* first = reinterpret_cast<const Bytef*>(checked.data());
  return big_endian_text(data.size()) + checked +
         big_endian_text(crc32_z(0, first, checked.size()));
}

/// How far bytes are from 0 as signed numbers, in all: a good guess at how well they pack.
std::int64_t distance(std::span<const std::uint8_t> bytes) {
  std::int64_t sum = 0;
  for (const std::uint8_t byte : bytes) sum += std::min<int>(byte, 256 - byte);
  return sum;
}

std::string filtered_rows(std::span<const std::uint8_t> pixels, std::size_t size,
                          std::size_t step) {
  std::vector<std::uint8_t> above(size), tried(size), best(size);
  std::string text;
  for (; !pixels.empty(); pixels = pixels.subspan(size)) {
    const auto row = pixels.first(size);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    char chosen = 0;
    for (int filter = 0; filter < kPngFilters; ++filter) {
      filter_row(filter, row, above, step, tried);
      if (const std::int64_t sum = distance(tried); sum < least) {
        least = sum;
        chosen = static_cast<char>(filter);
        std::swap(tried, best);
      }
    }
    text += chosen;
    text.append(best.begin(), best.end());
    above.assign(row.begin(), row.end());
  }
  return text;
}

}  // namespace

std::string encode_png(const Tensor& rows, const std::string& where) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;  // a chunk's length has 31 bits
  const std::int64_t height = rows.shape(0), width = rows.shape(1);
  if (rows.size() > kLargest)
    fail(where, "an image of ", width, " x ", height, " pixels is too large for PNG here");
  const std::size_t channels = rows.rank() == 3 ? 3 : 1;
  const std::string plain =
      filtered_rows({rows.data<std::uint8_t>(), static_cast<std::size_t>(rows.size())},
                    static_cast<std::size_t>(width) * channels, channels);
  uLongf size = compressBound(plain.size());
  std::string packed(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(packed.data()), &size,
               reinterpret_cast<const Bytef*>(plain.data()), plain.size()) != Z_OK)
    fail(where, "cannot be packed: out of memory");
  packed.resize(size);
  const std::string format({8, channels == 3 ? '\2' : '\0', 0, 0, 0});  // depth, colour, no options
  return "\x89PNG\r\n\x1a\n" +
         png_chunk("IHDR", big_endian_text(static_cast<std::uint64_t>(width)) +
                               big_endian_text(static_cast<std::uint64_t>(height)) + format) +
         png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

}  // namespace tensor

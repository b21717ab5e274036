// Helpers of the tests of images: numbers as bytes, and the parts that files are made of.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/io.h"
#include "tensor/tensor.h"
#include "tests/io/io_testing.h"

namespace tensor::testing {

inline std::string decode_message(const std::string& text, std::int64_t max_pixels = 1 << 20) {
  return check::error_of([&] { decode_image(bytes_of(text), "f", max_pixels); });
}
inline std::vector<int> levels_of(const std::string& text) {
  return decode_image(bytes_of(text), "f").to_vector<int>();
}

inline std::string big(std::uint64_t value, int width) {
  std::string text;
  for (int i = width; i-- > 0;) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return text;
}
inline std::string little(std::uint64_t value, int width) {
  std::string text = big(value, width);
  return {text.rbegin(), text.rend()};
}
inline std::string replaced(std::string text, std::size_t at, const std::string& bytes) {
  return text.replace(at, bytes.size(), bytes);
}
inline std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

// ---- PNG

inline std::string chunk(const std::string& kind, const std::string& data) {
  const std::string checked = kind + data;
  const auto* first = reinterpret_cast<const Bytef*>(checked.data());
  return big(data.size(), 4) + checked + big(crc32(0, first, static_cast<uInt>(checked.size())), 4);
}
inline std::string png_header(std::uint64_t width, std::uint64_t height, int depth, int colour,
                              int interlaced = 0) {
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big(width, 4) + big(height, 4) + bytes({depth, colour, 0, 0, interlaced}));
}
inline std::string zlib(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(text.data()), text.size()),
            Z_OK);
  packed.resize(size);
  return packed;
}
inline const std::string kPngEnd = chunk("IEND", "");

// ---- BMP

inline std::string bmp(int width, int height, int bits, int compression, const std::string& data,
                       const std::string& between = "", int colours = 0) {
  const auto number = [](std::int64_t value, int size) {
    return little(static_cast<std::uint64_t>(value), size);
  };
  const std::int64_t begin = 54 + std::ssize(between);
  return "BM" + number(begin + std::ssize(data), 4) + number(0, 4) + number(begin, 4) +
         number(40, 4) + number(width, 4) + number(height, 4) + number(1, 2) + number(bits, 2) +
         number(compression, 4) + number(0, 12) + number(colours, 4) + number(0, 4) + between +
         data;
}

// ---- JPEG and EXIF

inline std::string segment(int marker, const std::string& body) {
  return "\xff" + big(static_cast<std::uint64_t>(marker), 1) + big(body.size() + 2, 2) + body;
}
/// A TIFF structure with one entry besides another one. `value` fills up to four bytes.
inline std::string tiff(bool little_order, int tag, int type, int count, const std::string& value,
                        int entries = 2) {
  const auto number = [&](int v, int size) {
    return little_order ? little(static_cast<std::uint64_t>(v), size)
                        : big(static_cast<std::uint64_t>(v), size);
  };
  return (little_order ? "II" : "MM") + number(42, 2) + number(8, 4) + number(entries, 2) +
         number(0x010f, 2) + number(2, 2) + number(1, 4) + number(0, 4) + number(tag, 2) +
         number(type, 2) + number(count, 4) + value +
         std::string(4 - std::min<std::size_t>(value.size(), 4), '\0');
}

}  // namespace tensor::testing

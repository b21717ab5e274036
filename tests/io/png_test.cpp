// PNG: what is refused, what is passed over, and pixels that no file of tests/data/images has.
#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tests/io/image_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using namespace testing;

TEST(Png, RefusesBadChunks) {
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n"),
            "f: is cut short: a PNG chunk at byte 8 is not complete");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR0000"),
            "f: is cut short: a PNG chunk at byte 8 is not complete");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n" + kPngEnd),
            "f: is damaged: the PNG file begins with \"IEND\", need IHDR");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n" + chunk("IHDR", "abc")),
            "f: is damaged: the PNG file begins with \"IHDR\", need IHDR");
  EXPECT_EQ(decode_message(replaced(png_header(8, 8, 8, 2), 16, "\x01")),
            "f: is damaged: the checksum of the PNG chunk \"IHDR\" at byte 8 does not agree");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 2)),
            "f: is cut short: a PNG chunk at byte 33 is not complete");
  EXPECT_EQ(
      decode_message("\x89PNG\r\n\x1a\n" + chunk("CgBI", "abcd")),
      "f: is a PNG file in Apple's own form (CgBI), which only Apple's programs read: convert "
      "it first");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 0) + chunk("ABCD", "") + kPngEnd),
            "f: has the PNG chunk \"ABCD\", which this library does not know");
}

TEST(Png, RefusesBadSizes) {
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 5)),
            "f: is damaged: PNG colour type 5 of 8 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 7)),
            "f: is damaged: PNG colour type 7 of 8 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 3, 0)),
            "f: is damaged: PNG colour type 0 of 3 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 16, 3)),
            "f: is damaged: PNG colour type 3 of 16 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 4, 2)),
            "f: is damaged: PNG colour type 2 of 4 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 2, 2)),
            "f: is damaged: PNG compression 0, filter 0 and interlace 2, need 0, 0, and 0 or 1");
  EXPECT_EQ(decode_message(png_header(0, 8, 8, 2)), "f: is damaged: it is 0 x 8 pixels");
  EXPECT_EQ(
      decode_message(png_header(16000, 16000, 16, 6) + chunk("IDAT", zlib("x")) + kPngEnd, 1 << 30),
      "f: claims 16000 x 16000 pixels, which its 9 bytes of image data cannot hold");
  for (const unsigned width : {16000u, 1u << 25}) {
    const unsigned height = width == 16000 ? 16000 : 1;
    const std::string size = std::to_string(width) + " x " + std::to_string(height);
    EXPECT_EQ(decode_message(png_header(width, height, 1, 0) +
                                 chunk("IDAT", std::string(40000, 'x')) + kPngEnd,
                             1 << 30),
              "f: is " + size +
                  " pixels, need at most 250000000 in a PNG image, and 16777216 each way: "
                  "make it smaller");
  }
}

TEST(Png, RefusesBadData) {
  const auto idat_message = [](const std::string& idat) {
    return decode_message(png_header(8, 8, 8, 0) + chunk("IDAT", idat) + kPngEnd);
  };
  const std::string too_few =
      "f: is damaged: its PNG image data unpack to fewer bytes than its pixels take";
  EXPECT_EQ(idat_message(zlib(std::string(72, '\0'))), "no error");
  EXPECT_EQ(idat_message(zlib(std::string(71, '\0'))), too_few);
  EXPECT_EQ(idat_message(zlib(std::string(72, '\0')).substr(0, 5)), too_few);
  EXPECT_EQ(idat_message(std::string(30, '\xff')),
            "f: is damaged: its PNG image data cannot be unpacked (incorrect header check)");
  EXPECT_EQ(idat_message("\x78\xbb" + std::string(30, '\0')),
            "f: is damaged: its PNG image data cannot be unpacked (a dictionary is asked for)");
  EXPECT_EQ(idat_message(zlib('\x05' + std::string(71, '\0'))),
            "f: is damaged: PNG filter 5 does not exist");
  // What exceeds the pixels is not even unpacked.
  EXPECT_EQ(idat_message(zlib(std::string(1'000'000, '\0'))), "no error");
}

// ---- Palettes

std::string indexed(int depth, const std::string& palette_chunks, const std::string& rows,
                    int width, int height, int interlaced = 0) {
  return png_header(static_cast<unsigned>(width), static_cast<unsigned>(height), depth, 3,
                    interlaced) +
         palette_chunks + chunk("IDAT", zlib(rows)) + kPngEnd;
}

/// A decoded image, by turns between memory that is full of other bytes.
void expect_levels(const std::string& file, const std::vector<int>& want) {
  EXPECT_EQ(levels_of(file), want);
  EXPECT_EQ(levels_of(file), want);
}

TEST(Png, ColoursThatThePaletteLacksAreBlack) {
  const std::string two = chunk("PLTE", bytes({10, 20, 30, 40, 50, 60}));
  for (const int depth : {1, 2, 4, 8})
    for (const int interlaced : {0, 1}) {
      // Eight pixels in a row: 0, 1, the largest, and so on; one row, so that every pass of an
      // interlaced image is a row of its own.
      const int largest = (1 << depth) - 1;
      const std::vector<int> indices = {0, 1, largest, 0, 1, largest, largest, 0};
      const std::vector<std::vector<std::size_t>> passes =
          interlaced ? std::vector<std::vector<std::size_t>>{{0}, {4}, {2, 6}, {1, 3, 5, 7}}
                     : std::vector<std::vector<std::size_t>>{{0, 1, 2, 3, 4, 5, 6, 7}};
      std::string rows;
      for (const auto& pass : passes) {
        rows += '\0';
        std::uint64_t bits = 0;
        for (const std::size_t i : pass)
          bits = bits << depth | static_cast<std::uint64_t>(indices[i]);
        const int used = depth * static_cast<int>(pass.size()), size = (used + 7) / 8;
        rows += big(bits << (8 * size - used), size);
      }
      std::vector<int> want;
      for (const int index : indices) {
        const bool known = index < 2;
        for (const int level : {10 + 30 * index, 20 + 30 * index, 30 + 30 * index})
          want.push_back(known ? level : 0);
      }
      expect_levels(indexed(depth, two, rows, 8, 1, interlaced), want);
    }
}

TEST(Png, RefusesBadPalettes) {
  const std::string row(5, '\0');
  EXPECT_EQ(decode_message(indexed(8, "", row, 4, 1)),
            "f: is damaged: a PNG image of palette colours without a palette");
  EXPECT_EQ(decode_message(indexed(8, chunk("PLTE", std::string(257 * 3, 'x')), row, 4, 1)),
            "f: is damaged: a PNG palette of 257 colours, need at most 256");
  // Half a colour is none.
  const std::string indices = bytes({0, 0, 1});
  EXPECT_EQ(levels_of(indexed(8, chunk("PLTE", "abcd"), indices, 2, 1)),
            (std::vector<int>{'a', 'b', 'c', 0, 0, 0}));
  EXPECT_EQ(levels_of(indexed(8, chunk("PLTE", ""), indices, 2, 1)), std::vector<int>(6));
}

// ---- What others read as well

TEST(Png, PassesOverWhatThePixelsDoNotNeed) {
  const std::string colour = png_header(2, 1, 8, 2),
                    pixels = chunk("IDAT", zlib(bytes({0, 1, 2, 3, 4, 5, 6})));
  const std::vector<int> want = {1, 2, 3, 4, 5, 6};
  std::string wrong_sum = chunk("gAMA", big(45455, 4));
  wrong_sum.back() ^= 1;
  const std::string chunks[] = {chunk("tRNS", std::string(6, '\0')),
                                chunk("tRNS", "x"),
                                chunk("tRNS", ""),
                                chunk("tRNS", std::string(300, 'x')),
                                chunk("PLTE", "123456"),
                                chunk("PLTE", "1234"),
                                chunk("gAMA", big(100000, 4)),
                                chunk("gAMA", ""),
                                chunk("iCCP", "x"),
                                chunk("sBIT", "xyz"),
                                chunk("sRGB", "9"),
                                chunk("bKGD", ""),
                                chunk("acTL", big(1, 4)),
                                chunk("prVt", "private"),
                                chunk("IDAT", ""),
                                wrong_sum};
  for (const std::string& one : chunks) {
    EXPECT_EQ(levels_of(colour + one + pixels + kPngEnd), want) << one;
    EXPECT_EQ(levels_of(colour + one + one + pixels + one + kPngEnd + one), want) << one;
  }
  // Alpha is dropped, whatever tRNS adds to it.
  const std::string clear = chunk("tRNS", std::string(6, '\0'));
  EXPECT_EQ(levels_of(png_header(1, 1, 8, 6) + clear + chunk("IDAT", zlib(bytes({0, 7, 8, 9, 0}))) +
                      kPngEnd),
            (std::vector<int>{7, 8, 9}));
  EXPECT_EQ(
      levels_of(png_header(1, 1, 8, 4) + clear + chunk("IDAT", zlib(bytes({0, 7, 0}))) + kPngEnd),
      (std::vector<int>{7, 7, 7}));
  // Before the palette, and longer than it; entries that no pixel can name; the second palette.
  const std::string two = chunk("PLTE", "abcdef");
  const std::vector<int> blue = {'a', 'b', 'c', 'd', 'e', 'f'};
  for (const std::string& palette :
       {clear + two, two + clear, chunk("PLTE", "xyz") + two, two + chunk("hIST", "1"),
        chunk("PLTE", "abcdef" + std::string(60, 'x'))})
    EXPECT_EQ(levels_of(indexed(4, palette, bytes({0, 0x01}), 2, 1)), blue);
}

TEST(Png, TakesDataInAnyParts) {
  const std::string data = zlib(bytes({0, 1, 2, 3, 4, 5, 6}));
  for (std::size_t size = 1; size <= data.size(); ++size) {
    std::string parts;
    for (std::size_t at = 0; at < data.size(); at += size)
      parts += chunk("IDAT", data.substr(at, size)) + chunk("IDAT", "");
    EXPECT_EQ(levels_of(png_header(2, 1, 8, 2) + parts + kPngEnd),
              (std::vector<int>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(Png, SidesMayBeLong) {
  const std::size_t wide = 40000;
  const Tensor image =
      decode_image(bytes_of(png_header(wide, 1, 1, 0) +
                            chunk("IDAT", zlib(std::string(wide / 8 + 1, '\0'))) + kPngEnd),
                   "f");
  EXPECT_EQ(image.shape(), (Shape{1, 40000, 3}));
}

}  // namespace
}  // namespace tensor

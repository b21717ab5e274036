// BMP: what is refused, and pixels that no file of tests/data/images has.
#include "tests/io/image_testing.h"

namespace tensor {
namespace {

using namespace testing;

TEST(Bmp, RefusesBadFiles) {
  const std::string data(24, '\x10');
  EXPECT_EQ(decode_message(bmp(2, 3, 24, 0, data)), "no error");
  EXPECT_EQ(decode_message("BM"), "f: is cut short: a BMP file of 2 bytes");
  EXPECT_EQ(decode_message(bmp(2, 0, 24, 0, data)), "f: is damaged: it is 2 x 0 pixels");
  EXPECT_EQ(decode_message(bmp(-2, 3, 24, 0, data)), "f: is damaged: it is -2 x 3 pixels");
  EXPECT_EQ(decode_message(bmp(2, INT32_MIN, 24, 0, data)),
            "f: is 2 x 2147483648 pixels, more than the 1048576 that are allowed: make it "
            "smaller, or allow more (max_pixels, or a program's --max-pixels)");
  EXPECT_EQ(
      decode_message(bmp(2, 4, 24, 0, data)),
      "f: is cut short: 2 x 4 pixels of 24 bits take 30 bytes from byte 54 on, the file has 78");
  EXPECT_EQ(decode_message(replaced(bmp(2, 3, 24, 0, data), 10, little(0xffffffff, 4))),
            "f: is cut short: 2 x 3 pixels of 24 bits take 22 bytes from byte 4294967295 on, the "
            "file has 78");
  for (const int bits : {0, 2, 7, 64, 65535})
    EXPECT_EQ(decode_message(bmp(2, 3, bits, 0, data)),
              "f: is a BMP file of " + std::to_string(bits) +
                  " bits per pixel, need 1, 4, 8, 16, 24 or 32: convert it first");
  const std::pair<int, int> kinds[] = {{24, 1}, {8, 2}, {8, 3}, {24, 4}, {24, 5}, {32, 6}};
  for (const auto& [bits, compression] : kinds)
    EXPECT_EQ(
        decode_message(bmp(2, 3, bits, compression, data)),
        "f: is a BMP file of " + std::to_string(bits) + " bits per pixel with compression " +
            std::to_string(compression) +
            ", need 0 (none), 1 for 8 bits, 2 for 4 bits or 3 for 16 bits and more: convert it "
            "first");
  EXPECT_EQ(decode_message(replaced(bmp(2, 3, 24, 0, data), 10, little(40, 4))),
            "f: is damaged: its BMP pixels begin at byte 40, in the header");
  EXPECT_EQ(decode_message(replaced(bmp(2, 3, 24, 0, data), 14, little(44, 4))),
            "f: is a BMP file with a header of 44 bytes, need 12, 40, 52, 56, 64, 108 or 124: "
            "convert it first");
  EXPECT_EQ(
      decode_message(
          bmp(2, 3, 32, 3, data, little(0xff, 4) + little(0xff00, 4) + little(0x50000, 4))),
      "f: is a BMP file with the colour masks 255, 65280 and 327680, need consecutive bits for "
      "each: convert it first");
  EXPECT_EQ(decode_message(bmp(2, 3, 24, 0, data).substr(0, 40)),
            "f: is cut short: a BMP file of 40 bytes");
  EXPECT_EQ(decode_message(bmp(4, 2, 8, 1, bytes({4, 1, 0, 0, 4}), std::string(1024, 'x'))),
            "f: is cut short: the runs of its BMP pixels end before the image does");
}

// ---- Palettes

TEST(Bmp, ColoursThatThePaletteLacksAreBlack) {
  // 0, 1 and, where there are more, the largest.
  const std::string one = bytes({30, 20, 10, 0});
  EXPECT_EQ(levels_of(bmp(2, 1, 1, 0, bytes({0x40, 0, 0, 0}), one, 1)),
            (std::vector<int>{10, 20, 30, 0, 0, 0}));
  EXPECT_EQ(levels_of(bmp(3, 1, 4, 0, bytes({0x01, 0xf0, 0, 0}), one, 1)),
            (std::vector<int>{10, 20, 30, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(levels_of(bmp(3, 1, 8, 0, bytes({0, 1, 255, 0}), one, 1)),
            (std::vector<int>{10, 20, 30, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(levels_of(bmp(3, 1, 8, 1, bytes({1, 0, 1, 1, 1, 255}), one, 1)),
            (std::vector<int>{10, 20, 30, 0, 0, 0, 0, 0, 0}));
}

TEST(Bmp, PixelsBeginWhereTheHeaderSays) {
  const std::string row = bytes({1, 2, 3, 4, 5, 6, 0, 0}), palette = bytes({30, 20, 10, 0});
  const std::vector<int> want = {3, 2, 1, 6, 5, 4};
  EXPECT_EQ(levels_of(bmp(2, 1, 24, 0, row)), want);
  EXPECT_EQ(levels_of(bmp(2, 1, 24, 0, row, "a gap")), want);
  EXPECT_EQ(levels_of(bmp(2, 1, 24, 0, row, palette + palette, 2)), want);
  EXPECT_EQ(levels_of(bmp(2, 1, 24, 0, row + "behind the end")), want);
  EXPECT_EQ(levels_of(bmp(2, 1, 24, 0, row.substr(0, 6))), want);  // the last row needs no filling
  EXPECT_EQ(levels_of(replaced(bmp(2, 1, 24, 0, row), 10, little(0, 4))), want);
  // Offsets that lie: none, and that of the palette.
  const std::string eight = bmp(1, 1, 8, 0, std::string(4, '\0'), palette, 1);
  for (const unsigned begin : {0u, 54u, 58u})
    EXPECT_EQ(levels_of(replaced(eight, 10, little(begin, 4))), (std::vector<int>{10, 20, 30}));
}

// ---- Runs

TEST(Bmp, UnpacksRuns) {
  std::string palette;
  for (int i = 0; i < 256; ++i) palette += bytes({i, i, i, 0});
  const auto greys = [&](int width, int height, int bits, const std::string& runs) {
    const std::vector<int> levels = levels_of(bmp(width, height, bits, bits == 8 ? 1 : 2, runs,
                                                  palette.substr(0, bits == 8 ? 1024 : 64)));
    std::vector<int> grey;
    for (std::size_t i = 0; i < levels.size(); i += 3) grey.push_back(levels[i]);
    return grey;
  };
  using Greys = std::vector<int>;
  // From the top down: a run and single pixels, filled to an even number of bytes.
  EXPECT_EQ(greys(5, -2, 8, bytes({5, 9, 0, 0, 0, 3, 1, 2, 3, 0, 2, 4, 0, 1})),
            (Greys{9, 9, 9, 9, 9, 1, 2, 3, 4, 4}));
  EXPECT_EQ(greys(5, -2, 4, bytes({5, 0x9a, 0, 0, 0, 3, 0x12, 0x30, 2, 0x45, 0, 1})),
            (Greys{9, 10, 9, 10, 9, 1, 2, 3, 4, 5}));
  // From the bottom up; the first row ends early, the last is missing.
  EXPECT_EQ(greys(2, 3, 8, bytes({1, 7, 0, 0, 2, 8, 0, 1})), (Greys{0, 0, 8, 8, 7, 0}));
  // Empty rows, jumps, rows that end by themselves, runs beyond the row.
  EXPECT_EQ(greys(2, -3, 8, bytes({0, 0, 0, 0, 2, 8})), (Greys{0, 0, 0, 0, 8, 8}));
  EXPECT_EQ(greys(2, -3, 8, bytes({0, 2, 1, 1, 1, 8, 0, 1})), (Greys{0, 0, 0, 8, 0, 0}));
  EXPECT_EQ(greys(2, -2, 8, bytes({9, 8, 0, 0, 2, 7})), (Greys{8, 8, 7, 7}));
  EXPECT_EQ(greys(2, -2, 8, bytes({0, 2, 255, 255, 0, 1})), (Greys{0, 0, 0, 0}));
}

// ---- Colour masks

TEST(Bmp, MasksOfAnyWidth) {
  const auto pixel = [](int bits, std::uint64_t value, std::uint64_t red, std::uint64_t green,
                        std::uint64_t blue) {
    return levels_of(
        bmp(1, 1, bits, 3, little(value, 4), little(red, 4) + little(green, 4) + little(blue, 4)));
  };
  using Levels = std::vector<int>;
  EXPECT_EQ(pixel(16, 0xf800 | 31 << 5 | 1, 0xf800, 0x7e0, 0x1f), (Levels{255, 125, 8}));
  EXPECT_EQ(pixel(16, 0xf5a, 0xf00, 0xf0, 0xf), (Levels{255, 85, 170}));
  EXPECT_EQ(pixel(32, 0x01020304, 0xff000000, 0xff0000, 0xff00), (Levels{1, 2, 3}));
  EXPECT_EQ(pixel(32, 0x01020304, 0xff, 0xff00, 0xff0000), (Levels{4, 3, 2}));
  EXPECT_EQ(pixel(32, 0x3ff | 512 << 10, 0x3ff, 0xffc00, 0x3ff00000), (Levels{255, 127, 0}));
  EXPECT_EQ(pixel(24, 0x010203, 0xff0000, 0xff00, 0xff), (Levels{1, 2, 3}));
  EXPECT_EQ(pixel(32, 0x01020304, 0, 0, 0), (Levels{2, 3, 4}));  // the usual ones
}

}  // namespace
}  // namespace tensor

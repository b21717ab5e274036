// Images; tests/data/images holds files and Pillow's pixels of each (see make_images.py there).
#include <random>
#include <sstream>

#include "tensor/creation.h"
#include "tensor/ops.h"
#include "tests/io/image_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using namespace testing;
using check::error_of;

const std::string kImageData = TENSOR_TEST_DATA "/images/";

TEST(Image, PixelsAreThoseOfPillow) {
  const auto expected = load_npz(kImageData + "expected.npz");
  EXPECT_EQ(expected.size(), 58u);
  for (const auto& [name, pixels] : expected) {
    const Tensor got = load_image(kImageData + name);
    ASSERT_EQ(got.type(), pixels.type()) << name;
    const Tensor difference = abs(got.astype(i32) - pixels.astype(i32));
    std::int64_t most = 0, count = 0;
    for (const int value : difference.to_vector<int>()) {
      most = std::max<std::int64_t>(most, value);
      count += value != 0;
    }
    EXPECT_EQ(most, 0) << name << ": " << count << " of " << got.size() << " bytes differ";
  }
}

TEST(Image, RefusesWhatIsNoImage) {
  EXPECT_EQ(decode_message(""), "f: is empty: need PNG, JPEG, BMP or WebP");
  using namespace std::string_literals;
  const std::pair<std::string, std::string> others[] = {{"GIF89a", "GIF"},
                                                        {"II*\0\x08\0\0\0"s, "TIFF"},
                                                        {"MM\0*\0\0\0\x08"s, "TIFF"},
                                                        {"II+\0"s, "TIFF"},
                                                        {"MM\0+"s, "TIFF"},
                                                        {"\0\0\0\x18"s + "ftypheic", "HEIC"},
                                                        {"\0\0\0\x18"s + "ftyphevc", "HEIC"},
                                                        {"\0\0\0\x18"s + "ftypmif1", "HEIF"},
                                                        {"\0\0\0\x18"s + "ftypavif", "AVIF"},
                                                        {"%PDF-1.7", "PDF"},
                                                        {"\xff\x0a", "JPEG XL"},
                                                        {"\0\0\0\x0cJXL "s, "JPEG XL"},
                                                        {"\0\0\0\x0cjP  "s, "JPEG 2000"},
                                                        {"\xff\x4f\xff\x51", "JPEG 2000"},
                                                        {"8BPS", "PSD"},
                                                        {"\0\0\1\0"s, "ICO"},
                                                        {"\x8aMNG", "MNG"}};
  for (const auto& [start, format] : others) {
    EXPECT_EQ(decode_message(start),
              "f: is " + format + ": need PNG, JPEG, BMP or WebP; convert it first");
    EXPECT_EQ(image_format(bytes_of(start)), format);
  }
  for (const char* none : {"RIFF", "RIFF1234WAVE", "\x89PNG", "text"}) {
    EXPECT_EQ(decode_message(none),
              "f: is no image that this library reads: need PNG, JPEG, BMP or WebP");
    EXPECT_EQ(image_format(bytes_of(none)), "");
  }
  EXPECT_EQ(image_format(bytes_of("RIFF1234WEBP")), "WebP");
  EXPECT_EQ(image_format({}), "");
}

TEST(Image, LimitsThePixels) {
  for (const char* name : {"rgb.png", "420.jpg", "rgb.bmp"}) {
    const std::string text = testing::read_bytes(kImageData + name);
    EXPECT_EQ(decode_message(text, 35 * 21), "no error") << name;
    EXPECT_EQ(decode_message(text, 35 * 21 - 1),
              "f: is 35 x 21 pixels, more than the 734 that are allowed: make it smaller, or "
              "allow more (max_pixels, or a program's --max-pixels)")
        << name;
  }
}

// No part of a file may be missing but what fills the last row of a BMP file, and no shortened file
// may do more than throw UserError.
TEST(Image, RefusesEveryShortenedFile) {
  const std::pair<const char*, std::size_t> files[] = {
      {"interlaced.png", 0}, {"turned6.png", 0}, {"420.jpg", 0},     {"422_progressive.jpg", 0},
      {"rgb.bmp", 3},        {"bilevel.bmp", 3}, {"turned6.webp", 0}};
  for (const auto& [name, filling] : files) {
    const std::string text = testing::read_bytes(kImageData + name);
    for (std::size_t size = 0; size < text.size() - filling; ++size)
      ASSERT_NE(decode_message(text.substr(0, size)), "no error") << name << " cut to " << size;
  }
}

// Passes by itself, but not under valgrind, which is to find what is wrong (see CMakeLists.txt).
TEST(Memcheck, SeesWhatNobodyWrote) {
  std::ostringstream text;
  text << empty({16}, u8);
  EXPECT_NE(text.str(), "");
}

// ---- JPEG

std::string frame(int marker, int height, int width, int components, int precision = 8) {
  std::string body =
      big(static_cast<std::uint64_t>(precision), 1) + big(static_cast<std::uint64_t>(height), 2) +
      big(static_cast<std::uint64_t>(width), 2) + big(static_cast<std::uint64_t>(components), 1);
  for (int i = 0; i < components; ++i)
    body += big(static_cast<std::uint64_t>(i + 1), 1) + "\x11" + std::string(1, '\0');
  return segment(marker, body);
}
const std::string kStart = "\xff\xd8", kScan = segment(0xda, std::string("\x01\x01\0\0\x3f\0", 6)),
                  kEnd = "\xff\xd9";

TEST(Jpeg, RefusesBadSegments) {
  EXPECT_EQ(decode_message("\xff\xd8\xff"), "f: is cut short: the JPEG data have no end marker");
  EXPECT_EQ(decode_message("\xff\xd8\xff\xe0"),
            "f: is cut short: the JPEG data have no end marker");
  EXPECT_EQ(decode_message("\xff\xd8\xff\xe0\xff\xff"),
            "f: is cut short: the JPEG data have no end marker");
  EXPECT_EQ(decode_message(kStart + segment(0xe0, "JFIF") + "x"),
            "f: is damaged: no JPEG marker at byte 10");
  EXPECT_EQ(decode_message(kStart + segment(0xe0, "JFIF")),
            "f: is cut short: the JPEG data have no end marker");
  EXPECT_EQ(decode_message(kStart + kEnd),
            "f: is damaged: the JPEG file ends before its image data");
  EXPECT_EQ(decode_message(kStart + "\xff\xd0"),
            "f: is damaged: unexpected JPEG marker 208 at byte 3");
  EXPECT_EQ(decode_message(kStart + std::string("\xff\x01", 2)),
            "f: is damaged: unexpected JPEG marker 1 at byte 3");
  EXPECT_EQ(decode_message(kStart + std::string("\xff\xe0\0\x01", 4)),
            "f: is damaged: a JPEG segment of length 1 at byte 4");
}

TEST(Jpeg, RefusesBadFrames) {
  EXPECT_EQ(decode_message(kStart + kScan + kEnd),
            "f: is damaged: its JPEG data begin before their header");
  for (const int kind : {3, 5, 6, 7, 9, 10, 11, 13, 14, 15})
    EXPECT_EQ(decode_message(kStart + frame(0xc0 + kind, 8, 8, 1)),
              "f: is a JPEG of kind " + std::to_string(kind) +
                  " (lossless, hierarchical or arithmetic-coded), which "
                  "this library does not read: need baseline or progressive");
  EXPECT_EQ(decode_message(kStart + frame(0xc0, 8, 8, 1) + frame(0xc0, 9, 9, 1)),
            "f: is damaged: two JPEG headers");
  EXPECT_EQ(decode_message(kStart + segment(0xc0, "\x08")),
            "f: is damaged: the JPEG header is cut short");
  EXPECT_EQ(decode_message(kStart + frame(0xc1, 8, 8, 1, 12)),
            "f: is a JPEG of 12 bits per sample, need 8");
  EXPECT_EQ(decode_message(kStart + frame(0xc0, 8, 8, 2)),
            "f: is a JPEG of 2 colour components, need 1, 3 or 4");
  EXPECT_EQ(decode_message(kStart + frame(0xc0, 0, 8, 1) + kScan + kEnd),
            "f: is damaged: it is 8 x 0 pixels");
  const std::string huge = kStart + frame(0xc2, 60000, 60000, 3) + kScan + kEnd;
  EXPECT_EQ(decode_message(huge, std::int64_t{1} << 40),
            "f: claims 60000 x 60000 pixels, which its " + std::to_string(huge.size()) +
                " bytes cannot hold");
  EXPECT_EQ(decode_message(kStart + frame(0xc0, 8, 8, 1) + kScan + "data\xff"),
            "f: is cut short: the JPEG data have no end marker");
  // What only the decoder finds.
  EXPECT_EQ(decode_message(kStart + frame(0xc0, 8, 8, 1) + kScan + kEnd),
            "f: is damaged: Quantization table 0x00 was not defined");
}

TEST(Jpeg, TakesFillingAndRestartMarkers) {
  const std::string text = testing::read_bytes(kImageData + "optimized_restart.jpg");
  const std::string filled = text.substr(0, 2) + "\xff\xff\xff" + text.substr(2, text.size() - 4) +
                             "\xff\xff" + text.substr(text.size() - 2) + "behind the end";
  EXPECT_EQ(decode_image(testing::bytes_of(filled), "f").to_vector<int>(),
            load_image(kImageData + "optimized_restart.jpg").to_vector<int>());
}

// ---- Writing

class PngFile : public testing::FolderTest {};

TEST_F(PngFile, WritesAndReadsBack) {
  Generator random(check::seed());
  const Tensor colour = random.randint(0, 256, {13, 7, 3}, u8),
               grey = random.randint(0, 256, {5, 9}, u8);
  save_png(path("x.png"), colour);
  EXPECT_EQ(load_image(path("x.png")).to_vector<int>(), colour.to_vector<int>());
  save_png(path("x.png"), flip(colour, 1).transpose({1, 0, 2}));
  EXPECT_EQ(load_image(path("x.png")).to_vector<int>(),
            flip(colour, 1).transpose({1, 0, 2}).to_vector<int>());
  save_png(path("x.png"), grey);
  const Tensor back = load_image(path("x.png"));
  EXPECT_EQ(back.shape(), (Shape{5, 9, 3}));
  for (int channel = 0; channel < 3; ++channel)
    EXPECT_EQ(Tensor(back(ellipsis, channel)).to_vector<int>(), grey.to_vector<int>());
  EXPECT_EQ(files(), 1u);
}

TEST_F(PngFile, RefusesWhatIsNoImage) {
  const auto save_message = [&](const Tensor& x) {
    return error_of([&] { save_png(path("x.png"), x); });
  };
  EXPECT_EQ(save_message(zeros({2, 3, 3})),
            path("x.png") +
                ": got f32(2, 3, 3), need u8(height, width, 3) or u8(height, width), not empty");
  EXPECT_EQ(save_message(zeros({2, 3, 4}, u8)),
            path("x.png") +
                ": got u8(2, 3, 4), need u8(height, width, 3) or u8(height, width), not empty");
  EXPECT_EQ(
      save_message(zeros({0, 3}, u8)),
      path("x.png") + ": got u8(0, 3), need u8(height, width, 3) or u8(height, width), not empty");
  EXPECT_EQ(
      save_message(Tensor()),
      path("x.png") + ": the image: is undefined (default constructed): give it a value first");
  EXPECT_EQ(save_message(empty({40000, 40000}, u8)),
            path("x.png") + ": an image of 40000 x 40000 pixels is too large for PNG here");
  EXPECT_EQ(error_of([&] {
              save_png(path("no/x.png"), zeros({2, 3}, u8));
            }),
            path("no/x.png") + ": cannot be written: the folder " + path("no") +
                ": No such file or directory");
  EXPECT_EQ(files(), 0u);
}

TEST_F(PngFile, RefusesFilesThatCannotBeRead) {
  EXPECT_EQ(error_of([&] { load_image(path("x.png")); }),
            path("x.png") + ": cannot be opened: No such file or directory");
  testing::write_bytes(path("x.png"), "");
  std::filesystem::resize_file(path("x.png"), (std::uintmax_t{1} << 30) + 1);
  EXPECT_EQ(error_of([&] { load_image(path("x.png")); }),
            path("x.png") +
                ": has 1073741825 bytes, more than the 1073741824 that an image file may have");
}

}  // namespace
}  // namespace tensor

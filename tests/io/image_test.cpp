// Images; tests/data/images holds files and Pillow's pixels of each (see make_images.py there).
#include <zlib.h>

#include <random>

#include "src/io/exif.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tests/io/io_testing.h"
#include "tests/seed.h"

namespace tensor {
namespace {

using check::error_of;

const std::string kImageData = TENSOR_TEST_DATA "/images/";

std::string decode_message(const std::string& text, std::int64_t max_pixels = 1 << 20) {
  return error_of([&] { decode_image(testing::bytes_of(text), "f", max_pixels); });
}

std::string big(std::uint64_t value, int width) {
  std::string text;
  for (int i = width; i-- > 0;) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xff : 0);
  return text;
}
std::string little(std::uint64_t value, int width) {
  std::string text = big(value, width);
  return {text.rbegin(), text.rend()};
}
std::string with(std::string text, std::size_t at, const std::string& bytes) {
  return text.replace(at, bytes.size(), bytes);
}

TEST(Image, PixelsAreThoseOfPillow) {
  const auto expected = load_npz(kImageData + "expected.npz");
  EXPECT_EQ(expected.size(), 45u);
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
  EXPECT_EQ(decode_message(""), "f: is empty: need PNG, JPEG or BMP");
  const std::pair<std::string, std::string> others[] = {
      {"GIF89a", "GIF"},
      {std::string("RIFF\x24\0\0\0WEBPVP8 ", 16), "WebP"},
      {std::string("II*\0\x08\0\0\0", 8), "TIFF"},
      {std::string("MM\0*\0\0\0\x08", 8), "TIFF"},
      {std::string("\0\0\0\x18"
                   "ftypheic",
                   12),
       "HEIC"},
      {std::string("\0\0\0\x18"
                   "ftypavif",
                   12),
       "AVIF"},
      {"%PDF-1.7", "PDF"}};
  for (const auto& [bytes, format] : others)
    EXPECT_EQ(decode_message(bytes),
              "f: is " + format + ": need PNG, JPEG or BMP; convert it first");
  EXPECT_EQ(decode_message("RIFF"),
            "f: is no image that this library reads: need PNG, JPEG or BMP");
  EXPECT_EQ(decode_message("\x89PNG"),
            "f: is no image that this library reads: need PNG, JPEG or BMP");
}

TEST(Image, LimitsThePixels) {
  for (const char* name : {"rgb.png", "420.jpg", "rgb.bmp"}) {
    const std::string text = testing::read_bytes(kImageData + name);
    EXPECT_EQ(decode_message(text, 35 * 21), "no error") << name;
    EXPECT_EQ(decode_message(text, 35 * 21 - 1),
              "f: is 35 x 21 pixels, more than the 734 that are allowed")
        << name;
  }
}

// No part of a file may be missing, and no shortened file may do more than throw UserError.
TEST(Image, RefusesEveryShortenedFile) {
  for (const char* name : {"interlaced.png", "turned6.png", "420.jpg", "422_progressive.jpg",
                           "rgb.bmp", "bilevel.bmp"}) {
    const std::string text = testing::read_bytes(kImageData + name);
    for (std::size_t size = 0; size < text.size(); ++size)
      ASSERT_NE(decode_message(text.substr(0, size)), "no error") << name << " cut to " << size;
  }
}

// ---- JPEG

std::string segment(int marker, const std::string& body) {
  return "\xff" + big(static_cast<std::uint64_t>(marker), 1) + big(body.size() + 2, 2) + body;
}
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

// ---- PNG

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string checked = kind + data;
  return big(data.size(), 4) + checked +
         big(crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                   static_cast<uInt>(checked.size())),
             4);
}
std::string png_header(int width, int height, int depth, int colour) {
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", big(static_cast<std::uint64_t>(width), 4) +
                           big(static_cast<std::uint64_t>(height), 4) +
                           big(static_cast<std::uint64_t>(depth), 1) +
                           big(static_cast<std::uint64_t>(colour), 1) + big(0, 3));
}
std::string zlib(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(text.data()), text.size()),
            Z_OK);
  packed.resize(size);
  return packed;
}
const std::string kPngEnd = chunk("IEND", "");

TEST(Png, RefusesBadChunks) {
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n"),
            "f: is cut short: a PNG chunk at byte 8 is not complete");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n\xff\xff\xff\xffIHDR0000"),
            "f: is cut short: a PNG chunk at byte 8 is not complete");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n" + kPngEnd),
            "f: is damaged: the PNG file begins with \"IEND\", need IHDR");
  EXPECT_EQ(decode_message("\x89PNG\r\n\x1a\n" + chunk("IHDR", "abc")),
            "f: is damaged: the PNG file begins with \"IHDR\", need IHDR");
  EXPECT_EQ(decode_message(with(png_header(8, 8, 8, 2), 16, "\x01")),
            "f: is damaged: the checksum of the PNG chunk \"IHDR\" at byte 8 does not agree");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 2)),
            "f: is cut short: a PNG chunk at byte 33 is not complete");
}

TEST(Png, RefusesBadSizes) {
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 5)),
            "f: is damaged: PNG colour type 5 of 8 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 7)),
            "f: is damaged: PNG colour type 7 of 8 bits does not exist");
  EXPECT_EQ(decode_message(png_header(8, 8, 3, 0)),
            "f: is damaged: PNG colour type 0 of 3 bits does not exist");
  EXPECT_EQ(decode_message(png_header(0, 8, 8, 2)), "f: is damaged: it is 0 x 8 pixels");
  EXPECT_EQ(decode_message(png_header(16385, 8, 8, 2)),
            "f: is 16385 x 8 pixels, need at most 16384 each way");
  EXPECT_EQ(
      decode_message(png_header(16000, 16000, 16, 6) + chunk("IDAT", zlib("x")) + kPngEnd, 1 << 30),
      "f: claims 16000 x 16000 pixels, which its 9 bytes of image data cannot hold");
}

TEST(Png, RefusesWhatTheDecoderRefuses) {
  const auto idat_message = [](const std::string& idat) {
    return decode_message(png_header(8, 8, 8, 0) + chunk("IDAT", idat) + kPngEnd);
  };
  EXPECT_EQ(idat_message(zlib(std::string(72, '\0'))), "no error");
  EXPECT_EQ(idat_message(zlib(std::string(71, '\0'))), "f: is damaged: not enough pixels");
  EXPECT_EQ(idat_message(std::string(30, '\xff')), "f: is damaged: bad zlib header");
  EXPECT_EQ(idat_message(zlib('\x05' + std::string(71, '\0'))), "f: is damaged: invalid filter");
  // A bomb: the image needs 72 bytes, the data unpack to a million.
  EXPECT_EQ(idat_message(zlib(std::string(1'000'000, '\0'))), "f: is damaged: outofmem");
  EXPECT_EQ(decode_message(png_header(8, 8, 8, 0) + chunk("ABCD", "") +
                           chunk("IDAT", zlib(std::string(72, '\0'))) + kPngEnd),
            "f: has the PNG chunk \"ABCD\", which this library does not know");
}

// ---- BMP

std::string bmp(int width, int height, int bits, int compression, const std::string& data) {
  const auto number = [](int value, int bytes) {
    return little(static_cast<std::uint32_t>(value), bytes);
  };
  return "BM" + number(54 + static_cast<int>(data.size()), 4) + number(0, 4) + number(54, 4) +
         number(40, 4) + number(width, 4) + number(height, 4) + number(1, 2) + number(bits, 2) +
         number(compression, 4) + number(0, 20) + data;
}

TEST(Bmp, RefusesBadFiles) {
  const std::string data(24, '\x10');
  EXPECT_EQ(decode_message(bmp(2, 3, 24, 0, data)), "no error");
  EXPECT_EQ(decode_message("BM"), "f: is cut short: a BMP file of 2 bytes");
  EXPECT_EQ(decode_message(bmp(2, 0, 24, 0, data)), "f: is damaged: it is 2 x 0 pixels");
  EXPECT_EQ(decode_message(bmp(-2, 3, 24, 0, data)), "f: is damaged: it is -2 x 3 pixels");
  EXPECT_EQ(decode_message(bmp(20000, 3, 24, 0, data)),
            "f: is 20000 x 3 pixels, need at most 16384 each way");
  EXPECT_EQ(decode_message(bmp(2, INT32_MIN, 24, 0, data)),
            "f: is 2 x 2147483648 pixels, more than the 1048576 that are allowed");
  EXPECT_EQ(
      decode_message(bmp(2, 4, 24, 0, data)),
      "f: is cut short: 2 x 4 pixels of 24 bits take 32 bytes from byte 54 on, the file has 78");
  EXPECT_EQ(decode_message(with(bmp(2, 3, 24, 0, data), 10, little(0xffffffff, 4))),
            "f: is cut short: 2 x 3 pixels of 24 bits take 24 bytes from byte 4294967295 on, the "
            "file has 78");
  EXPECT_EQ(decode_message(bmp(2, 3, 8, 1, data)), "f: is damaged: BMP RLE");
  for (const int bits : {0, 7, 16, 65535})
    EXPECT_EQ(
        decode_message(bmp(2, 3, bits, 0, data)),
        "f: is a BMP file of " + std::to_string(bits) + " bits per pixel, need 1, 4, 8, 24 or 32");
  // The decoder asserts where the pixels begin.
  EXPECT_EQ(decode_message(with(bmp(2, 3, 24, 0, data), 10, little(40, 4))).substr(0, 14),
            "f: is damaged:");
}

// ---- EXIF

// A TIFF structure with one entry besides another one.
std::string tiff(bool little_order, int tag, int type, int count, int value, int entries = 2) {
  const auto number = [&](int v, int bytes) {
    return little_order ? little(static_cast<std::uint64_t>(v), bytes)
                        : big(static_cast<std::uint64_t>(v), bytes);
  };
  return (little_order ? "II" : "MM") + number(42, 2) + number(8, 4) + number(entries, 2) +
         number(0x010f, 2) + number(2, 2) + number(1, 4) + number(0, 4) + number(tag, 2) +
         number(type, 2) + number(count, 4) +
         (type == 3 ? number(value, 2) + number(0, 2) : number(value, 4));
}
int orientation(const std::string& text) { return exif_orientation(testing::bytes_of(text)); }

TEST(Exif, ReadsTheOrientation) {
  for (const bool order : {true, false})
    for (int value = 1; value <= 8; ++value) {
      EXPECT_EQ(orientation(tiff(order, 0x0112, 3, 1, value)), value);
      EXPECT_EQ(orientation(tiff(order, 0x0112, 4, 1, value)), value);
    }
}

TEST(Exif, DamageMeansUpright) {
  const std::string sound = tiff(true, 0x0112, 3, 1, 6);
  for (std::size_t size = 0; size < sound.size(); ++size)
    EXPECT_EQ(orientation(sound.substr(0, size)), 1) << size;
  EXPECT_EQ(orientation(tiff(true, 0x0112, 3, 1, 0)), 1);
  EXPECT_EQ(orientation(tiff(true, 0x0112, 3, 1, 9)), 1);
  EXPECT_EQ(orientation(tiff(true, 0x0112, 3, 2, 6)), 1);
  EXPECT_EQ(orientation(tiff(true, 0x0112, 2, 1, 6)), 1);
  EXPECT_EQ(orientation(tiff(true, 0x0113, 3, 1, 6)), 1);
  EXPECT_EQ(orientation(tiff(true, 0x0113, 3, 1, 6, 60000)), 1);
  EXPECT_EQ(orientation(with(sound, 0, "X")), 1);
  EXPECT_EQ(orientation(with(sound, 0, "XX")), 1);
  EXPECT_EQ(orientation(with(sound, 2, "+")), 1);
  EXPECT_EQ(orientation(with(sound, 4, "\xff\xff\xff\xff")), 1);
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

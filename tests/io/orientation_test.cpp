// How images are turned: by EXIF data and XMP, from everywhere that files of the formats have them.
#include <gtest/gtest.h>

#include "src/io/orientation.h"
#include "tests/io/image_testing.h"

namespace tensor {
namespace {

using namespace testing;

const std::string kPrefix("Exif\0\0", 6);

int turn(const std::string& exif, const std::string& xmp = "") {
  return orientation_of({.exif = exif, .xmp = xmp});
}
std::string short_of(bool little_order, int value) {
  return little_order ? little(static_cast<unsigned>(value), 2)
                      : big(static_cast<unsigned>(value), 2);
}
std::string turned(int orientation) { return tiff(true, 0x0112, 3, 1, little(orientation, 2)); }
std::string xmp_of(int orientation) {
  return "<rdf:Description tiff:Orientation=\"" + std::to_string(orientation) + "\"/>";
}

TEST(Orientation, IsAWholeNumberOfAnyType) {
  for (const bool order : {true, false}) {
    const auto number = [&](std::uint64_t value, int size) {
      return order ? little(value, size) : big(value, size);
    };
    for (int value = 0; value <= 10; ++value)
      EXPECT_EQ(turn(tiff(order, 0x0112, 3, 1, short_of(order, value))),
                value >= 1 && value <= 8 ? value : 1);
    // Types 3, 8: 16 bits; 4, 9, 13: 32 bits; 6: 8 bits; 11: a float.
    for (const int type : {3, 8}) EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, number(6, 2))), 6);
    for (const int type : {4, 9, 13})
      EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, number(6, 4))), 6) << type;
    EXPECT_EQ(turn(tiff(order, 0x0112, 6, 1, "\6")), 6);
    EXPECT_EQ(turn(tiff(order, 0x0112, 11, 1, number(0x40c00000, 4))), 6);
    EXPECT_EQ(turn(tiff(order, 0x0112, 11, 1, number(0x40d00000, 4))), 1);  // 6.5
    // What does not fit into the entry lies where it says: 5, 10: fractions, 12: a double, 16: 64
    // bits.
    const std::string place = number(34, 4);
    for (const int type : {5, 10}) {
      EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, place) + number(12, 4) + number(2, 4)), 6);
      EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, place) + number(13, 4) + number(2, 4)), 1);
      EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, place) + number(6, 4) + number(0, 4)), 1);
    }
    EXPECT_EQ(turn(tiff(order, 0x0112, 12, 1, place) + number(0x4018000000000000, 8)), 6);
    EXPECT_EQ(turn(tiff(order, 0x0112, 16, 1, place) + number(6, 8)), 6);
    // Of several the first counts; of none the XMP.
    EXPECT_EQ(turn(tiff(order, 0x0112, 3, 2, number(6, 2) + number(3, 2))), 6);
    EXPECT_EQ(turn(tiff(order, 0x0112, 3, 3, place) + number(6, 2) + number(3, 4)), 6);
    EXPECT_EQ(turn(tiff(order, 0x0112, 3, 0, number(6, 2)), xmp_of(8)), 8);
    // Bytes and texts are no numbers to Pillow, but say that XMP does not count.
    for (const int type : {1, 2, 7})
      EXPECT_EQ(turn(tiff(order, 0x0112, type, 1, "\6"), xmp_of(8)), 1) << type;
  }
}

TEST(Orientation, ExifOutranksXmp) {
  EXPECT_EQ(turn(turned(3), xmp_of(8)), 3);
  EXPECT_EQ(turn(turned(0), xmp_of(8)), 1);  // there, but it does not exist
  EXPECT_EQ(turn(tiff(true, 0x0113, 3, 1, "\6"), xmp_of(8)), 8);
  EXPECT_EQ(turn("", xmp_of(8)), 8);
  EXPECT_EQ(turn(kPrefix, xmp_of(8)), 8);
  // Damaged EXIF data do as well, as they do in Pillow's JPEG files.
  for (const char* damaged : {"X", "no TIFF structure"}) EXPECT_EQ(turn(damaged, xmp_of(8)), 1);
}

TEST(Orientation, PrefixesAndSwappedMarksAreTaken) {
  EXPECT_EQ(turn(kPrefix + turned(6)), 6);
  EXPECT_EQ(turn(kPrefix + kPrefix + turned(6)), 6);
  EXPECT_EQ(turn(kPrefix + kPrefix + kPrefix + turned(6)), 1);
  EXPECT_EQ(turn(replaced(turned(6), 2, std::string("\0*", 2))), 6);
}

TEST(Orientation, DamageMeansUpright) {
  const std::string sound = turned(6);
  for (std::size_t size = 0; size < sound.size(); ++size)
    EXPECT_EQ(turn(sound.substr(0, size)), 1) << size;
  EXPECT_EQ(turn(tiff(true, 0x0113, 3, 1, "\6", 60000)), 1);
  EXPECT_EQ(turn(tiff(true, 0x0112, 99, 1, "\6")), 1);
  EXPECT_EQ(turn(tiff(true, 0x0112, 3, 3, little(34, 4)) + "12345"), 1);  // one byte too few
  EXPECT_EQ(turn(tiff(true, 0x0112, 3, 3000, little(34, 4)) + "123456"), 1);
  EXPECT_EQ(turn(replaced(sound, 0, "X")), 1);
  EXPECT_EQ(turn(replaced(sound, 0, "XX")), 1);
  EXPECT_EQ(turn(replaced(sound, 2, "+")), 1);
  EXPECT_EQ(turn(replaced(sound, 4, "\xff\xff\xff\xff")), 1);
  // Behind an entry whose text is missing nothing is read, as in Pillow.
  EXPECT_EQ(turn(replaced(replaced(sound, 14, little(9, 4)), 18, little(9999, 4))), 1);
}

TEST(Orientation, XmpIsAnAttributeOrAnElement) {
  const auto xmp = [](const std::string& text) {
    return orientation_of({.exif = {}, .xmp = text});
  };
  EXPECT_EQ(xmp(xmp_of(6)), 6);
  EXPECT_EQ(xmp("<tiff:Orientation>6</tiff:Orientation>"), 6);
  EXPECT_EQ(xmp("tiff:Orientation=\"x\" tiff:Orientation=\"6\""), 6);
  EXPECT_EQ(xmp(xmp_of(0) + xmp_of(6)), 1);
  for (const char* none : {"", "<a/>", "tiff:Orientation", "tiff:Orientation=\"",
                           "tiff:Orientation>", "tiff:Orientation = \"6\"", "tiff:Orientation='6'"})
    EXPECT_EQ(xmp(none), 1) << none;
}

// ---- Where files have them

/// A PNG image, twice as wide as high, with these chunks before its pixels or after.
std::string png_with(const std::string& before, const std::string& after = "") {
  return png_header(2, 1, 8, 0) + before + chunk("IDAT", zlib(std::string("\0\1\2", 3))) + after +
         kPngEnd;
}
/// The size of such an image tells whether it was turned.
void expect_turned(const std::string& file, bool is_turned = true) {
  EXPECT_EQ(decode_image(bytes_of(file), "f").shape(),
            is_turned ? (Shape{2, 1, 3}) : (Shape{1, 2, 3}))
      << file;
}

std::string text_chunk(const std::string& kind, const std::string& name, const std::string& text) {
  const std::string zero(1, '\0');
  if (kind == "tEXt") return chunk("tEXt", name + zero + text);
  if (kind == "zTXt") return chunk("zTXt", name + zero + zero + zlib(text));
  const bool packed = kind == "packed iTXt";
  return chunk("iTXt", name + zero + (packed ? "\1" : zero) + zero + "en" + zero + "name" + zero +
                           (packed ? zlib(text) : text));
}
const std::string kTextKinds[] = {"tEXt", "zTXt", "iTXt", "packed iTXt"};

/// EXIF data as ImageMagick writes them.
std::string raw_profile(const std::string& exif) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "\nexif\n  " + std::to_string(exif.size()) + "\n";
  for (std::size_t i = 0; i < exif.size(); ++i) {
    const auto byte = static_cast<unsigned char>(exif[i]);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
    if (i % 36 == 35) text += "\n";
  }
  return text + "\n";
}

TEST(Orientation, IsFoundInPngChunks) {
  const std::string xmp_name = "XML:com.adobe.xmp", profile_name = "Raw profile type exif";
  std::vector<std::string> chunks = {chunk("eXIf", turned(6)), chunk("eXIf", kPrefix + turned(6)),
                                     text_chunk("tEXt", "exif", turned(6))};
  for (const std::string& kind : kTextKinds) {
    chunks.push_back(text_chunk(kind, xmp_name, xmp_of(6)));
    chunks.push_back(text_chunk(kind, profile_name, raw_profile(kPrefix + turned(6))));
    chunks.push_back(text_chunk(kind, profile_name, raw_profile(turned(6))));
  }
  for (const std::string& one : chunks) {
    expect_turned(png_with(one));
    expect_turned(png_with("", one));
  }
  const std::string upright = raw_profile(turned(1)), exif = chunk("eXIf", turned(6));
  expect_turned(png_with(exif + text_chunk("tEXt", profile_name, upright)));
  expect_turned(png_with(text_chunk("tEXt", profile_name, upright) + exif));
  expect_turned(png_with(chunk("eXIf", turned(1)) + exif));
  expect_turned(png_with(exif, chunk("eXIf", turned(1))), false);
  expect_turned(
      png_with(text_chunk("tEXt", profile_name, upright) + text_chunk("iTXt", xmp_name, xmp_of(6))),
      false);
}

TEST(Orientation, PngTextsThatAreDamagedSayNothing) {
  const std::string name = "Raw profile type exif", zero(1, '\0');
  std::string wrong_sum = chunk("eXIf", turned(6));
  wrong_sum.back() ^= 1;
  for (const std::string& none :
       {wrong_sum, chunk("eXIf", ""), chunk("tEXt", name), chunk("tEXt", name + zero + "\nexif"),
        chunk("tEXt", name + zero + "\nexif\n 3\nwrong\n"), chunk("tEXt", ""),
        chunk("zTXt", name + zero), chunk("zTXt", name + zero + zero + "no zlib"),
        chunk("iTXt", "XML:com.adobe.xmp" + zero), chunk("iTXt", "XML:com.adobe.xmp" + zero + "\1"),
        chunk("tEXt", "Raw profile type APP1" + zero + raw_profile(turned(6)))})
    expect_turned(png_with(none), false);
  // More than a megabyte is no EXIF data.
  expect_turned(
      png_with(text_chunk("zTXt", "XML:com.adobe.xmp", std::string(1 << 20, ' ') + xmp_of(6))),
      false);
}

/// A grey JPEG image of one level, twice as wide as high.
std::string jpeg_with(const std::string& segments) {
  const auto table = [](int kind) {
    return segment(0xc4, bytes({kind, 1}) + std::string(16, '\0'));
  };
  return "\xff\xd8" + segments + segment(0xdb, std::string(1, '\0') + std::string(64, '\1')) +
         segment(0xc0, bytes({8, 0, 8, 0, 16, 1, 1, 0x11, 0})) + table(0) + table(0x10) +
         segment(0xda, bytes({1, 1, 0, 0, 63, 0})) + "\x0f\xff\xd9";
}

TEST(Orientation, IsFoundInJpegSegments) {
  const std::string xmp("http://ns.adobe.com/xap/1.0/\0", 29);
  const auto turns = [](const std::vector<std::string>& bodies) {
    std::string segments;
    for (const std::string& body : bodies) segments += segment(0xe1, body);
    const Tensor image = decode_image(bytes_of(jpeg_with(segments)), "f");
    return image.shape(0) > image.shape(1);
  };
  EXPECT_FALSE(turns({}));
  EXPECT_TRUE(turns({kPrefix + turned(6)}));
  EXPECT_TRUE(turns({xmp + xmp_of(6)}));
  EXPECT_TRUE(turns({xmp + xmp_of(1), xmp + xmp_of(6)}));
  EXPECT_FALSE(turns({xmp + xmp_of(6), kPrefix + turned(1)}));
  EXPECT_TRUE(turns({kPrefix + turned(6), kPrefix + turned(1)}));
  // Data that go on in a second segment.
  EXPECT_TRUE(turns({kPrefix + turned(6).substr(0, 15), kPrefix + turned(6).substr(15)}));
  EXPECT_TRUE(turns({kPrefix, kPrefix + turned(6)}));
  EXPECT_FALSE(turns({"Exif" + turned(6), "http://ns.adobe.com/xap/" + xmp_of(6)}));
}

}  // namespace
}  // namespace tensor

// WebP: the container, and what is said where libwebp is missing. The pixels of whole files are
// compared in image_test.cpp.
#include <dlfcn.h>

#include "src/core/shared_library.h"
#include "tests/io/image_testing.h"

#if __has_include(<webp/decode.h>)
#include <webp/decode.h>
#endif

namespace tensor {
namespace {

using namespace testing;

std::string webp_chunk(const std::string& kind, const std::string& data) {
  return kind + little(data.size(), 4) + data + std::string(data.size() % 2, '\0');
}
std::string riff(const std::string& chunks) {
  return "RIFF" + little(chunks.size() + 4, 4) + "WEBP" + chunks;
}
std::string extended(int flags, std::uint64_t width, std::uint64_t height) {
  return webp_chunk("VP8X", bytes({flags, 0, 0, 0}) + little(width - 1, 3) + little(height - 1, 3));
}
std::string animation_frame(std::uint64_t left, std::uint64_t top, const std::string& picture) {
  return webp_chunk("ANMF",
                    little(left / 2, 3) + little(top / 2, 3) + std::string(10, '\0') + picture);
}

/// A lossless picture of 2 x 1 pixels, each 10 20 30.
const std::string kPicture = webp_chunk("VP8L", bytes({0x2f, 1, 0, 0, 0, 7, 0x50, 0x8a, 0x2a, 0xd4,
                                                       0xa3, 0xff, 0x81, 0x88, 0xe8, 0x7f, 0, 0}));
const std::vector<int> kLevels = {10, 20, 30, 10, 20, 30};

/// EXIF data that turn the picture.
const std::string kTurned = tiff(true, 0x0112, 3, 1, "\6");
Shape shape_of(const std::string& file) { return decode_image(bytes_of(file), "f").shape(); }

TEST(Webp, FindsThePictureInItsContainer) {
  EXPECT_EQ(levels_of(riff(kPicture)), kLevels);
  EXPECT_EQ(levels_of(riff(kPicture) + "behind the end"), kLevels);
  EXPECT_EQ(levels_of(riff(webp_chunk("what", "abc") + kPicture + webp_chunk("else", ""))),
            kLevels);
  EXPECT_EQ(levels_of(riff(extended(0, 2, 1) + webp_chunk("ICCP", "profile") + kPicture)), kLevels);
}

TEST(Webp, OfAnAnimationTheFirstFrameIsTaken) {
  const std::string animation = webp_chunk("ANIM", std::string(6, '\xff'));
  EXPECT_EQ(levels_of(riff(extended(2, 2, 1) + animation + animation_frame(0, 0, kPicture) +
                           animation_frame(0, 0, ""))),
            kLevels);
  // On a canvas of 4 x 3 pixels, which is black elsewhere.
  const std::vector<int> levels = levels_of(riff(
      extended(2, 4, 3) + animation + animation_frame(2, 2, webp_chunk("ALPH", "x") + kPicture)));
  std::vector<int> want(4 * 3 * 3);
  std::copy(kLevels.begin(), kLevels.end(), want.end() - 6);
  EXPECT_EQ(levels, want);
}

TEST(Webp, IsTurnedAsExifAndXmpSay) {
  const std::string xmp = webp_chunk("XMP ", "tiff:Orientation=\"6\""),
                    exif = webp_chunk("EXIF", kTurned);
  const Shape flat = {1, 2, 3}, upright = {2, 1, 3};
  EXPECT_EQ(shape_of(riff(extended(8, 2, 1) + kPicture + exif)), upright);
  EXPECT_EQ(shape_of(riff(extended(8, 2, 1) + exif + kPicture)), upright);
  EXPECT_EQ(shape_of(riff(extended(4, 2, 1) + kPicture + xmp)), upright);
  // Only what the header announces counts, as in libwebp.
  EXPECT_EQ(shape_of(riff(extended(0, 2, 1) + kPicture + exif + xmp)), flat);
  EXPECT_EQ(shape_of(riff(kPicture + exif)), flat);
  EXPECT_EQ(shape_of(riff(extended(8, 2, 1) + kPicture + webp_chunk("EXIF", "") + exif)), flat);
}

TEST(Webp, RefusesBadFiles) {
  const std::string sound = riff(kPicture);
  EXPECT_EQ(decode_message(riff("")), "f: is damaged: a WebP file without a picture");
  EXPECT_EQ(decode_message(sound.substr(0, 12)),
            "f: is cut short: a WebP file of 4 bytes behind its size, which says 30");
  EXPECT_EQ(decode_message(riff(kPicture.substr(0, 20))),
            "f: is cut short: a WebP chunk at byte 12 is not complete");
  EXPECT_EQ(decode_message(riff(kPicture + "VP8")),
            "f: is cut short: a WebP chunk at byte 38 is not complete");
  EXPECT_EQ(decode_message(riff(webp_chunk("VP8X", "short"))),
            "f: is damaged: its WebP header is cut short");
  EXPECT_EQ(decode_message(riff(webp_chunk("ANMF", "short"))),
            "f: is damaged: a WebP frame of 5 bytes");
  EXPECT_EQ(decode_message(riff(webp_chunk("VP8L", "nonsense"))),
            "f: is damaged: libwebp finds no picture in it");
  EXPECT_EQ(decode_message(riff(webp_chunk("VP8L", bytes({0x2f, 1, 0, 0, 0, 7, 0x50})))),
            "f: is damaged: libwebp cannot decode it");
  EXPECT_EQ(decode_message(riff(extended(2, 3, 1) + animation_frame(2, 0, kPicture))),
            "f: is damaged: a WebP picture of 2 x 1 pixels at 2, 0 on a canvas of 3 x 1");
  const std::string too_large =
      ", more than the 1 that are allowed: make it smaller, or allow more "
      "(max_pixels, or a program's --max-pixels)";
  EXPECT_EQ(decode_message(sound, 1), "f: is 2 x 1 pixels" + too_large);
  EXPECT_EQ(decode_message(riff(extended(0, 1 << 24, 1 << 24) + kPicture), 1),
            "f: is 16777216 x 16777216 pixels" + too_large);
  for (std::size_t size = 0; size < sound.size(); ++size)
    EXPECT_NE(decode_message(sound.substr(0, size)), "no error") << size;
}

TEST(Webp, SaysWhatToInstall) {
  void* const library = ::dlopen("libwebp.so.7", RTLD_NOW);
  ASSERT_TRUE(library) << ::dlerror();
  for (const char* name : {"libwebp.so.7", "libwebp.so"}) SharedLibrary::stand_in(name, nullptr);
  EXPECT_EQ(decode_message(riff(kPicture)),
            "f: libwebp, which decodes WebP images: cannot be opened (libwebp.so.7: is absent; "
            "libwebp.so: is absent): install it (Debian: libwebp-dev), or convert the image first");
  SharedLibrary::stand_in("libwebp.so.7",
                          [=](const char* function) { return ::dlsym(library, function); });
  EXPECT_EQ(levels_of(riff(kPicture)), kLevels);
}

#if __has_include(<webp/decode.h>)
TEST(Webp, IsDeclaredAsLibwebpDeclaresIt) {
  static_assert(
      std::is_same_v<decltype(::WebPGetInfo), int(const std::uint8_t*, std::size_t, int*, int*)>);
  static_assert(std::is_same_v<decltype(::WebPDecodeRGBInto),
                               std::uint8_t*(const std::uint8_t*, std::size_t, std::uint8_t*,
                                             std::size_t, int)>);
}
#endif

}  // namespace
}  // namespace tensor

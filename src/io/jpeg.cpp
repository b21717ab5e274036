// JPEG through libjpeg-turbo, which is what Pillow uses: with the same transform and upsampling the
// pixels are equal.
#include <turbojpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/io/image_format.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

struct JpegHeader {
  std::int64_t width = 0, height = 0;
  int components = 0;
  Metadata metadata;
};

// Walks the segments; libjpeg would guess its way through damage that this refuses.
class JpegWalk {
 public:
  explicit JpegWalk(const ImageSource& source) : source_(source), bytes_(source.bytes) {}

  JpegHeader header() {
    JpegHeader header;
    while (true) {
      const int marker = next_marker();
      const Bytes body = segment();
      if (marker == kStartOfScan) break;
      if (is_frame(marker)) read_frame(marker, body, header);
      if (marker == kApp1) read_metadata(as_text(body), header.metadata);
    }
    if (header.components == 0)
      fail(source_.name, "is damaged: its JPEG data begin before their header");
    return header;
  }

  // From the first scan to the end marker.
  void check_complete() {
    while (true) {
      const void* found = at_ < bytes_.size()
                              ? std::memchr(bytes_.data() + at_, 0xff, bytes_.size() - at_)
                              : nullptr;
      if (!found) fail_short();
      at_ = static_cast<std::size_t>(static_cast<const std::byte*>(found) - bytes_.data()) + 1;
      if (at_ == bytes_.size()) fail_short();
      const int marker = std::to_integer<int>(bytes_[at_]);
      if (marker == kEndOfImage) return;
      if (marker == 0xff) continue;  // filling
      ++at_;
      const bool is_data = marker == 0 || (marker >= kRestart0 && marker <= kRestart0 + 7);
      if (!is_data) segment();
    }
  }

 private:
  static constexpr int kStartOfFrame = 0xc0, kRestart0 = 0xd0, kEndOfImage = 0xd9,
                       kStartOfScan = 0xda, kApp1 = 0xe1;

  // The other codes from 0xc0 to 0xcf define tables.
  static bool is_frame(int marker) {
    return marker >= kStartOfFrame && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
           marker != 0xcc;
  }

  [[noreturn]] void fail_short() const {
    fail(source_.name, "is cut short: the JPEG data have no end marker");
  }

  int next_marker() {
    if (at_ >= bytes_.size()) fail_short();
    if (bytes_[at_] != std::byte{0xff})
      fail(source_.name, "is damaged: no JPEG marker at byte ", at_);
    while (at_ < bytes_.size() && bytes_[at_] == std::byte{0xff}) ++at_;
    if (at_ >= bytes_.size()) fail_short();
    const int marker = std::to_integer<int>(bytes_[at_++]);
    if (marker == kEndOfImage)
      fail(source_.name, "is damaged: the JPEG file ends before its image data");
    if (marker < kStartOfFrame || (marker >= kRestart0 && marker < kEndOfImage))
      fail(source_.name, "is damaged: unexpected JPEG marker ", marker, " at byte ", at_ - 1);
    return marker;
  }

  // The bytes after a marker and its length.
  Bytes segment() {
    if (bytes_.size() - at_ < 2) fail_short();
    const auto length = static_cast<std::size_t>(big_endian(bytes_, at_, 2));
    if (length < 2)
      fail(source_.name, "is damaged: a JPEG segment of length ", length, " at byte ", at_);
    if (length > bytes_.size() - at_) fail_short();
    const Bytes body = bytes_.subspan(at_ + 2, length - 2);
    at_ += length;
    return body;
  }

  static void read_metadata(std::string_view body, Metadata& metadata) {
    constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
    if (body.starts_with(kXmp)) metadata.xmp = body.substr(kXmp.size());
    if (!body.starts_with(kExif)) return;
    // Longer EXIF data go on in the next segment.
    if (!metadata.exif) metadata.exif.emplace();
    metadata.exif->append(body.substr(kExif.size()));
  }

  void read_frame(int marker, Bytes body, JpegHeader& header) const {
    if (marker > kStartOfFrame + 2)
      fail(source_.name, "is a JPEG of kind ", marker - kStartOfFrame,
           " (lossless, hierarchical or arithmetic-coded), "
           "which this library does not read: need baseline or progressive");
    if (header.components != 0) fail(source_.name, "is damaged: two JPEG headers");
    if (body.size() < 6) fail(source_.name, "is damaged: the JPEG header is cut short");
    const auto precision = big_endian(body, 0, 1);
    if (precision != 8) fail(source_.name, "is a JPEG of ", precision, " bits per sample, need 8");
    header.height = static_cast<std::int64_t>(big_endian(body, 1, 2));
    header.width = static_cast<std::int64_t>(big_endian(body, 3, 2));
    header.components = static_cast<int>(big_endian(body, 5, 1));
    if (header.components != 1 && header.components != 3 && header.components != 4)
      fail(source_.name, "is a JPEG of ", header.components, " colour components, need 1, 3 or 4");
  }

  const ImageSource& source_;
  Bytes bytes_;
  std::size_t at_ = 2;  // after the start marker
};

void decompress(const ImageSource& source, const JpegHeader& header, TJPF format, int channels,
                Tensor& out) {
  const std::unique_ptr<void, int (*)(tjhandle)> handle(tjInitDecompress(), tjDestroy);
  if (!handle) fail(source.name, "cannot be decoded: ", tjGetErrorStr2(nullptr));
  // Many thousand empty scans would keep the decoder busy for hours.
  const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
  const int width = static_cast<int>(header.width), height = static_cast<int>(header.height);
  const int status =
      tjDecompress2(handle.get(), reinterpret_cast<const unsigned char*>(source.bytes.data()),
                    source.bytes.size(), out.mutable_data<std::uint8_t>(), width, width * channels,
                    height, format, flags);
  // Warnings are damage that Pillow shows without a word too.
  if (status != 0 && tjGetErrorCode(handle.get()) != TJERR_WARNING)
    fail(source.name, "is damaged: ", tjGetErrorStr2(handle.get()));
}

// As Pillow does: inverted inks (Adobe's habit), then RGB = (1 - ink) (1 - black).
Tensor rgb_from_cmyk(const Tensor& cmyk) {
  Tensor rgb = empty({cmyk.shape(0), cmyk.shape(1), 3}, u8);
  const std::uint8_t* in = cmyk.data<std::uint8_t>();
  std::uint8_t* out = rgb.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < rgb.size() / 3; ++i, in += 4, out += 3)
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - in[c]) * in[3] + 128;  // of bytes that stand for 0 to 1
      out[c] = static_cast<std::uint8_t>(in[3] - ((product + (product >> 8)) >> 8));
    }
  return rgb;
}

}  // namespace

DecodedImage decode_jpeg(const ImageSource& source) {
  JpegWalk walk(source);
  const JpegHeader header = walk.header();
  check_pixels(source, header.width, header.height);
  // Huffman coding spends a bit at least on every block of 8 x 8, so a byte describes 512 pixels at
  // most.
  if (header.width * header.height / 512 > static_cast<std::int64_t>(source.bytes.size()))
    fail(source.name, "claims ", header.width, " x ", header.height, " pixels, which its ",
         source.bytes.size(), " bytes cannot hold");
  walk.check_complete();
  const bool cmyk = header.components == 4;
  Tensor pixels = zeros({header.height, header.width, cmyk ? 4 : 3}, u8);
  decompress(source, header, cmyk ? TJPF_CMYK : TJPF_RGB, cmyk ? 4 : 3, pixels);
  return {cmyk ? rgb_from_cmyk(pixels) : pixels, header.metadata};
}

}  // namespace tensor

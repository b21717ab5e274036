// The chunks of a PNG file.
#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "src/io/png.h"
#include "src/io/source.h"
#include "tensor/error.h"

namespace tensor {
namespace {

struct Chunk {
  std::string_view kind;
  Bytes data;

  bool is_ancillary() const { return (kind.front() & 0x20) != 0; }
};

class ChunkReader {
 public:
  explicit ChunkReader(const ImageSource& source) : source_(source) {}

  /// The next chunk whose checksum agrees; ancillary ones are passed over until then.
  Chunk next() {
    constexpr std::size_t kAround = 12;  // length, kind and checksum
    while (true) {
      const Bytes rest = source_.bytes.subspan(at_);
      const std::uint64_t length = rest.size() < kAround ? 0 : big_endian(rest, 0, 4);
      if (rest.size() < kAround || length > rest.size() - kAround)
        fail(source_.name, "is cut short: a PNG chunk at byte ", at_, " is not complete");
      const auto size = static_cast<std::size_t>(length);
      const Bytes checked = rest.subspan(4, 4 + size);
      const Chunk chunk{as_text(checked.first(4)), checked.subspan(4)};
      const auto* first = reinterpret_cast<const Bytef*>(checked.data());
      const bool agrees = crc32_z(0, first, checked.size()) == big_endian(rest, 8 + size, 4);
      if (!agrees && !chunk.is_ancillary())
        fail(source_.name, "is damaged: the checksum of the PNG chunk ", in_quotes(chunk.kind),
             " at byte ", at_, " does not agree");
      at_ += kAround + size;
      if (agrees) return chunk;
    }
  }

 private:
  const ImageSource& source_;
  std::size_t at_ = 8;  // after the signature
};

Png read_png_header(const ImageSource& source, const Chunk& chunk) {
  if (chunk.kind == "CgBI")
    fail(source.name,
         "is a PNG file in Apple's own form (CgBI), which only Apple's programs read: "
         "convert it first");
  if (chunk.kind != "IHDR" || chunk.data.size() != 13)
    fail(source.name, "is damaged: the PNG file begins with ", in_quotes(chunk.kind),
         ", need IHDR");
  const auto byte = [&](std::size_t at) { return static_cast<int>(big_endian(chunk.data, at, 1)); };
  Png png;
  png.header = chunk.data;
  png.width = static_cast<std::int64_t>(big_endian(chunk.data, 0, 4));
  png.height = static_cast<std::int64_t>(big_endian(chunk.data, 4, 4));
  png.depth = byte(8);
  png.colour = byte(9);
  const int packing = byte(10), filtering = byte(11), interlacing = byte(12);
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  png.channels = png.colour < std::ssize(kChannels) ? kChannels[png.colour] : 0;
  const bool small = png.depth == 1 || png.depth == 2 || png.depth == 4;
  const bool sound =
      png.depth == 8 || (small && png.channels == 1) || (png.depth == 16 && !png.has_palette());
  if (png.channels == 0 || !sound)
    fail(source.name, "is damaged: PNG colour type ", png.colour, " of ", png.depth,
         " bits does not exist");
  if (packing != 0 || filtering != 0 || interlacing > 1)
    fail(source.name, "is damaged: PNG compression ", packing, ", filter ", filtering,
         " and interlace ", interlacing, ", need 0, 0, and 0 or 1");
  check_pixels(source, png.width, png.height);
  png.interlaced = interlacing == 1;
  return png;
}

std::string read_palette(const ImageSource& source, Bytes data) {
  constexpr std::size_t kMost = 256;
  const std::size_t count = data.size() / 3;
  if (count > kMost)
    fail(source.name, "is damaged: a PNG palette of ", count, " colours, need at most ", kMost);
  std::string palette(as_text(data.first(3 * count)));
  palette.resize(3 * kMost);
  return palette;
}

// ---- Texts

/// What is before the first zero byte; `text` keeps what is behind it.
std::string_view split(std::string_view& text) {
  const std::size_t size = std::min(text.find('\0'), text.size());
  const std::string_view head = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  return head;
}

/// Inflated, or empty where it is damaged or takes more than a megabyte.
std::string unpacked(std::string_view packed) {
  uLongf size = std::min(packed.size() * kMaxDeflateRatio, std::size_t{1} << 20);
  std::string text(size, '\0');
  const int status = uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
                                reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  text.resize(status == Z_OK ? size : 0);
  return text;
}

/// ImageMagick's form of EXIF data: a blank line, "exif", the length, hexadecimal digits.
std::optional<std::string> raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line)
    text.remove_prefix(std::min(std::min(text.find('\n'), text.size()) + 1, text.size()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string bytes;
  int high = -1;
  for (const char letter : text) {
    if (letter == '\n' || letter == '\r' || letter == ' ') continue;
    const auto digit = kDigits.find(
        letter >= 'A' && letter <= 'F' ? static_cast<char>(letter - 'A' + 'a') : letter);
    if (digit == std::string_view::npos) return std::nullopt;
    if (high >= 0) bytes += static_cast<char>(high << 4 | static_cast<int>(digit));
    high = high >= 0 ? -1 : static_cast<int>(digit);
  }
  return bytes;
}

/// EXIF data and XMP from where programs put them; the last chunk of a name counts.
class PngMetadata {
 public:
  void add(const Chunk& chunk) {
    std::string_view text = as_text(chunk.data);
    if (chunk.kind == "eXIf") exif_ = text;
    if (chunk.kind != "tEXt" && chunk.kind != "zTXt" && chunk.kind != "iTXt") return;
    const std::string_view name = split(text);
    if (name != kProfile && name != kXmp && name != "exif") return;
    bool packed = chunk.kind == "zTXt";
    if (chunk.kind == "iTXt") {
      packed = !text.empty() && text.front() != '\0';
      text.remove_prefix(std::min<std::size_t>(2, text.size()));  // whether it is packed, and how
      split(text), split(text);                                   // language, translated name
    } else if (packed) {
      text.remove_prefix(std::min<std::size_t>(1, text.size()));
    }
    const std::string value = packed ? unpacked(text) : std::string(text);
    if (name == kProfile) profile_ = raw_profile(value);
    if (name == kXmp) xmp_ = value;
    if (name == "exif" && chunk.kind == "tEXt") exif_ = value;
  }

  Metadata metadata() && { return {exif_ ? std::move(exif_) : std::move(profile_), xmp_}; }

 private:
  static constexpr std::string_view kProfile = "Raw profile type exif", kXmp = "XML:com.adobe.xmp";
  std::optional<std::string> exif_, profile_;
  std::string xmp_;
};

}  // namespace

Png read_png(const ImageSource& source) {
  ChunkReader chunks(source);
  Png png = read_png_header(source, chunks.next());
  PngMetadata metadata;
  std::int64_t packed = 0;
  while (true) {
    const Chunk chunk = chunks.next();
    if (chunk.kind == "IEND") break;
    if (chunk.kind == "IDAT") {
      png.data.push_back(chunk.data);
      packed += std::ssize(chunk.data);
    } else if (chunk.kind == "PLTE") {
      if (!png.has_palette() || !png.data.empty()) continue;  // a suggestion, or misplaced
      png.palette = read_palette(source, chunk.data);
    } else if (chunk.is_ancillary()) {
      metadata.add(chunk);
    } else {
      fail(source.name, "has the PNG chunk ", in_quotes(chunk.kind),
           ", which this library does not know");
    }
  }
  if (png.has_palette() && png.palette.empty())
    fail(source.name, "is damaged: a PNG image of palette colours without a palette");
  const std::int64_t row_bytes = (png.width * png.channels * png.depth + 7) / 8;
  if (png.height * row_bytes / kMaxDeflateRatio > packed)
    fail(source.name, "claims ", png.width, " x ", png.height, " pixels, which its ", packed,
         " bytes of image data cannot hold");
  png.metadata = std::move(metadata).metadata();
  return png;
}

}  // namespace tensor

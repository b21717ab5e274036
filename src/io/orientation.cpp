#include "src/io/orientation.h"

#include <bit>
#include <string_view>

#include "tensor/ops.h"

namespace tensor {
namespace {

/// The bytes of one value of a TIFF type; 0 for types that do not exist.
std::size_t tiff_size(std::uint64_t type) {
  constexpr std::size_t kSizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
  return type < std::size(kSizes) ? kSizes[type] : 0;
}

/// The first of an entry's values where it is a whole number, else 0.
std::uint64_t tiff_number(std::uint64_t type, Bytes value, bool little) {
  constexpr std::uint64_t kByte = 1, kText = 2, kRational = 5, kUndefined = 7, kSignedRational = 10,
                          kFloat = 11, kDouble = 12;
  const auto number = [&](std::size_t at, std::size_t width) {
    return little ? little_endian(value, at, width) : big_endian(value, at, width);
  };
  if (type == kByte || type == kText || type == kUndefined) return 0;  // Pillow takes it for text
  if (type == kRational || type == kSignedRational) {
    const std::uint64_t above = number(0, 4), below = number(4, 4);
    return below != 0 && above % below == 0 ? above / below : 0;
  }
  double real = 0;
  if (type == kFloat) real = std::bit_cast<float>(static_cast<std::uint32_t>(number(0, 4)));
  if (type == kDouble) real = std::bit_cast<double>(number(0, 8));
  if (type != kFloat && type != kDouble) return number(0, tiff_size(type));
  return real >= 1 && real <= 8 && real == static_cast<int>(real) ? static_cast<unsigned>(real) : 0;
}

/// The orientation in a TIFF structure's first directory; nothing where it has none, 0 where the
/// data are no such structure. What follows an entry whose values they do not hold is not read.
std::optional<std::uint64_t> tiff_orientation(Bytes tiff) {
  constexpr std::uint64_t kOrientation = 0x0112;
  constexpr std::size_t kEntrySize = 12, kInline = 4;
  if (tiff.size() < 8) return 0;
  const std::string_view order = as_text(tiff.first(2));
  const bool little = order == "II";
  const std::uint64_t mark =
      little_endian(tiff, 2, 2);  // some cameras write it the wrong way round
  if (!(little || order == "MM") || (mark != 42 && mark != 42 << 8)) return 0;
  const auto number = [&](std::size_t at, std::size_t width) {
    return little ? little_endian(tiff, at, width) : big_endian(tiff, at, width);
  };
  std::size_t at = number(4, 4);
  if (at > tiff.size() || tiff.size() - at < 2) return std::nullopt;
  std::uint64_t entries = number(at, 2), total = 0;
  for (at += 2; entries > 0 && tiff.size() - at >= kEntrySize; --entries, at += kEntrySize) {
    const std::uint64_t type = number(at + 2, 2), size = number(at + 4, 4) * tiff_size(type);
    if (size == 0) continue;
    std::uint64_t begin = at + 8;
    if (size > kInline) {
      begin = number(begin, 4);
      if ((total += size) > tiff.size()) continue;
      if (begin > tiff.size() || size > tiff.size() - begin) return std::nullopt;
    }
    if (number(at, 2) == kOrientation) return tiff_number(type, tiff.subspan(begin, size), little);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> exif_orientation(std::string_view exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  for (int i = 0; i < 2 && exif.starts_with(kPrefix); ++i) exif.remove_prefix(kPrefix.size());
  if (exif.empty()) return std::nullopt;
  return tiff_orientation(as_bytes(exif));
}

/// tiff:Orientation="6" or <tiff:Orientation>6.
std::optional<std::uint64_t> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = 0; (at = xmp.find(kName, at)) != std::string_view::npos;) {
    at += kName.size();
    const std::string_view rest = xmp.substr(at);
    const std::size_t digit = rest.starts_with("=\"") ? 2 : 1;
    if ((digit == 1 && !rest.starts_with(">")) || rest.size() <= digit) continue;
    if (rest[digit] >= '0' && rest[digit] <= '9')
      return static_cast<std::uint64_t>(rest[digit] - '0');
  }
  return std::nullopt;
}

}  // namespace

int orientation_of(const Metadata& metadata) {
  std::optional<std::uint64_t> found;
  if (metadata.exif) found = exif_orientation(*metadata.exif);
  if (!found) found = xmp_orientation(metadata.xmp);
  return found && *found >= 1 && *found <= 8 ? static_cast<int>(*found) : 1;
}

Tensor turned_upright(const Tensor& image, int orientation) {
  const Tensor upright = orientation >= 5 ? image.transpose({1, 0, 2}) : image;
  switch (orientation) {
    case 2:
    case 6:
      return flip(upright, 1);
    case 3:
    case 7:
      return flip(upright, {0, 1});
    case 4:
    case 8:
      return flip(upright, 0);
    default:
      return upright;
  }
}

}  // namespace tensor

#include "models/common/sizes.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "tensor/error.h"
#include "tensor/text.h"

namespace models {
namespace {

constexpr std::int64_t kMostImages = 1 << 16;

/// The whole text as a number from 1 to `most`.
std::optional<std::int64_t> count(std::string_view text, std::int64_t most) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const bool is_good = error == std::errc() && rest == end && number >= 1 && number <= most;
  return is_good ? std::optional(number) : std::nullopt;
}

/// "480x640"
std::optional<Size> height_and_width(std::string_view text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const auto height = count(text.substr(0, cross), kMostPixels);
  const auto width = count(text.substr(cross + 1), kMostPixels);
  if (!height || !width || *height > kMostPixels / *width) return std::nullopt;
  return Size{*height, *width};
}

}  // namespace

std::vector<InputSize> parse_sizes(const std::string& text, Size usual) {
  std::vector<Size> sizes;
  std::vector<std::int64_t> batches;
  std::string_view rest = text;
  for (bool is_last = false; !is_last;) {
    const std::size_t comma = rest.find(',');
    is_last = comma == std::string_view::npos;
    const std::string_view word = rest.substr(0, comma);
    if (!is_last) rest.remove_prefix(comma + 1);
    const auto size = height_and_width(word);
    const auto batch = word.starts_with('b') ? count(word.substr(1), kMostImages) : std::nullopt;
    if (size)
      sizes.push_back(*size);
    else if (batch)
      batches.push_back(*batch);
    else
      tensor::fail("--sizes", "got \"", word, "\" in \"", text,
                   "\", need sizes HEIGHTxWIDTH of at most ", kMostPixels,
                   " pixels and batches b1 to b", kMostImages, ", as in 480x640,800x1333,b1,b8");
  }
  if (sizes.empty()) sizes.push_back(usual);
  if (batches.empty()) batches.push_back(1);
  std::vector<InputSize> result;
  for (const Size& size : sizes)
    for (const std::int64_t batch : batches) result.push_back({batch, size});
  return result;
}

std::string describe(const InputSize& size) {
  tensor::TextWriter text;
  text << size.size.height << 'x' << size.size.width << ",b" << size.batch;
  return text.str();
}

}  // namespace models

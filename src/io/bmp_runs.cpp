// The run-length codes of BMP files: RLE8 and RLE4.
#include <algorithm>

#include "src/io/bmp.h"
#include "tensor/error.h"

namespace tensor {
namespace {

class BmpRuns {
 public:
  BmpRuns(const ImageSource& source, const Bmp& bmp)
      : source_(source),
        bmp_(bmp),
        width_(static_cast<std::size_t>(bmp.width)),
        pixels_(width_ * static_cast<std::size_t>(bmp.height)) {}

  std::vector<std::byte> unpack() && {
    constexpr std::size_t kEndOfRow = 0, kEndOfImage = 1, kSkip = 2;
    while (at_ < pixels_.size()) {
      const std::size_t count = next(), code = next();
      if (count > 0) {
        repeat(count, code);
      } else if (code == kEndOfRow) {
        // A row that is full has ended already; one that has not begun stays empty.
        if (column_ == 0 || at_ % width_ != 0) at_ += width_ - at_ % width_;
        column_ = 0;
      } else if (code == kEndOfImage) {
        break;
      } else if (code == kSkip) {
        const std::size_t right = next(), rows = next();
        at_ += right + rows * width_;
        column_ += right;
      } else {
        copy(code);
      }
    }
    return std::move(pixels_);
  }

 private:
  bool is_four_bits() const { return bmp_.bits == 4; }

  std::size_t next() {
    if (in_ >= bmp_.pixels.size())
      fail(source_.name, "is cut short: the runs of its BMP pixels end before the image does");
    return std::to_integer<std::size_t>(bmp_.pixels[in_++]);
  }

  void put(std::size_t value) {
    if (at_ < pixels_.size()) pixels_[at_++] = static_cast<std::byte>(value);
  }

  /// Two values by turns where a byte holds two. What exceeds the row is dropped.
  void repeat(std::size_t count, std::size_t values) {
    count = std::min(count, width_ - std::min(column_, width_));
    for (std::size_t i = 0; i < count; ++i)
      put(!is_four_bits() ? values : i % 2 == 0 ? values >> 4 : values & 15);
    column_ += count;
  }

  /// Values as they stand, filled up to an even number of bytes.
  void copy(std::size_t count) {
    const std::size_t bytes = is_four_bits() ? (count + 1) / 2 : count;
    for (std::size_t i = 0, byte = 0; i < count; ++i) {
      if (!is_four_bits() || i % 2 == 0) byte = next();
      put(!is_four_bits() ? byte : i % 2 == 0 ? byte >> 4 : byte & 15);
    }
    in_ += bytes % 2;
    column_ += count;
  }

  const ImageSource& source_;
  const Bmp& bmp_;
  std::size_t width_, in_ = 0, at_ = 0;
  std::size_t column_ = 0;  // where the row's next pixel goes
  std::vector<std::byte> pixels_;
};

}  // namespace

std::vector<std::byte> unpack_bmp_runs(const ImageSource& source, const Bmp& bmp) {
  return BmpRuns(source, bmp).unpack();
}

}  // namespace tensor

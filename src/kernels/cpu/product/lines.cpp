#include "src/kernels/cpu/product/lines.h"

#include <algorithm>

#include "src/core/rounding.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {

namespace {
constexpr std::int64_t kMostPlanes = 16;
}

std::optional<WindowLines> WindowLines::of(const Layout& image, const Node& convolution,
                                           Pair kernel, std::int64_t channels) {
  const bool are_planes = channels > 1 && image.strides[1] != 1;
  if (are_planes && (image.strides[3] != 1 || channels > kMostPlanes)) return std::nullopt;
  const WindowLines lines(image, convolution, kernel, channels);
  return lines.dilation_.w == 1 ? std::optional(lines) : std::nullopt;
}

WindowLines::WindowLines(const Layout& image, const Node& convolution, Pair kernel,
                         std::int64_t channels)
    : channels_(channels),
      height_(image.shape[2]),
      width_(image.shape[3]),
      image_(image.strides[0]),
      line_(image.strides[2]),
      pixel_(image.shape[3] == 1 ? channels : image.strides[3]),
      channel_(channels == 1 ? 1 : image.strides[1]),
      kernel_(kernel),
      out_{convolution.type.shape[2], convolution.type.shape[3]},
      step_(pair_of(convolution.attrs, "stride", 0, "conv")),
      padding_(pair_of(convolution.attrs, "padding", 0, "conv")),
      dilation_(pair_of(convolution.attrs, "dilation", 0, "conv")) {
  padded_ = (out_.w - 1) * step_.w + kernel_.w;
  padded_lines_ = (out_.h - 1) * step_.h + (kernel_.h - 1) * dilation_.h + 1;
  is_copied_ = padding_.w > 0 || channel_ != 1 || pixel_ != channels_;
}

Range WindowLines::taps_of(std::int64_t line) const {
  const std::int64_t first = line * step_.h - padding_.h;
  const std::int64_t begin = std::min(first < 0 ? ceil_div(-first, dilation_.h) : 0, kernel_.h);
  const std::int64_t inside = first < height_ ? ceil_div(height_ - first, dilation_.h) : 0;
  return {begin, std::clamp(inside, begin, kernel_.h)};
}

std::int64_t WindowLines::copy_bytes(std::int64_t rows) const {
  if (!is_copied_) return 0;
  // Lines that the rows touch, and images between them.
  const std::int64_t lines = (rows - 1) / out_.w + 2, images = (lines - 1) / out_.h + 2;
  return (lines * step_.h + images * padded_lines_) * pitch() * 4;
}

void WindowLines::copy(const float* image, const Range& rows, float* to) const {
  if (!is_copied_) return;
  const std::int64_t begin = first_line(rows.begin / out_.w),
                     end = first_line((rows.end - 1) / out_.w) + (kernel_.h - 1) * dilation_.h + 1;
  const std::int64_t before = std::min(padding_.w, padded_);
  const std::int64_t inside = std::clamp<std::int64_t>(padded_ - before, 0, width_);
  for (std::int64_t line = begin; line < end; ++line, to += pitch()) {
    const std::int64_t y = line % padded_lines_ - padding_.h;
    if (y < 0 || y >= height_) continue;  // no tap lies there
    std::fill_n(to, before * channels_, 0.0f);
    const float* from = image + line / padded_lines_ * image_ + y * line_;
    if (channel_ != 1)
      simd::table().pack_columns(to + before * channels_, channels_, from, channel_, channels_,
                                 inside);
    else if (pixel_ == channels_)
      std::copy_n(from, inside * channels_, to + before * channels_);
    else
      simd::table().copy_rows(to + before * channels_, channels_, from, pixel_, inside, channels_);
    std::fill(to + (before + inside) * channels_, to + pitch(), 0.0f);
  }
}

}  // namespace tensor::cpu

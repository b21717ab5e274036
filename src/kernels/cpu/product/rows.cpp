#include "src/kernels/cpu/product/rows.h"

#include <algorithm>
#include <cstring>

#include "src/core/view.h"
#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/host/simd/table.h"
#include "src/ops/pair.h"

namespace tensor::cpu {
namespace {

template <std::int64_t size>
void copy_strided(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + size * i, from + size * stride * i, static_cast<std::size_t>(size));
}

class MatrixRows : public ProductRows {
 public:
  MatrixRows(const Layout& left, const Shape& result, const Numbers& numbers)
      : numbers_(numbers), depth_(left.shape.back()) {
    Shape rows = result;
    rows.erase(rows.rank() - 1);
    Shape all = rows;
    all.push_back(depth_);
    Strides strides = broadcast_strides(left.shape, left.strides, all);
    column_ = depth_ == 1 ? 1 : strides.back();
    strides.erase(strides.rank() - 1);
    rows_ = Access(rows, strides);
  }

  std::int64_t depth() const override { return depth_; }
  void gather(const std::byte* from, std::int64_t row, std::int64_t count, std::byte* to,
              std::int64_t pitch) const override {
    rows_.walk(row, count, [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i, to += pitch)
        numbers_.copy(to, from + numbers_.stored_bytes() * (offset + i * stride), column_, depth_);
    });
  }
  std::optional<std::int64_t> row_bytes() const override {
    const auto stride = rows_.stride();
    if (column_ != 1 || !stride || !numbers_.are_same()) return std::nullopt;
    return numbers_.stored_bytes() * *stride;
  }

 private:
  Numbers numbers_;
  Access rows_;
  std::int64_t depth_, column_ = 1;
};

class WindowRows : public ProductRows {
 public:
  WindowRows(const Layout& image, const Shape& weights, const Attrs& attributes,
             const Shape& result, const Numbers& numbers)
      : numbers_(numbers),
        images_(image.shape[0]),
        channels_(image.shape[1]),
        height_(image.shape[2]),
        width_(image.shape[3]),
        kernel_h_(weights[2]),
        kernel_w_(weights[3]),
        out_h_(result[2]),
        out_w_(result[3]),
        step_(pair_of(attributes, "stride", 0, "conv")),
        padding_(pair_of(attributes, "padding", 0, "conv")),
        dilation_(pair_of(attributes, "dilation", 0, "conv")),
        image_(image.strides[0]),
        channel_(channels_ == 1 ? 1 : image.strides[1]),
        line_(image.strides[2]),
        pixel_(image.strides[3]) {}

  std::int64_t depth() const override { return kernel_h_ * kernel_w_ * channels_; }

  void gather(const std::byte* from, std::int64_t row, std::int64_t count, std::byte* to,
              std::int64_t pitch) const override {
    std::int64_t x = row % out_w_, y = row / out_w_ % out_h_, n = row / (out_w_ * out_h_);
    for (std::int64_t i = 0; i < count; ++i, to += pitch) {
      gather_window(from + numbers_.stored_bytes() * n * image_, y, x, to);
      if (++x < out_w_) continue;
      x = 0;
      if (++y < out_h_) continue;
      y = 0, ++n;
    }
  }

  // A filter of one pixel that goes from pixel to pixel reads a matrix.
  std::optional<std::int64_t> row_bytes() const override {
    const bool is_one = kernel_h_ == 1 && kernel_w_ == 1 && padding_.h == 0 && padding_.w == 0 &&
                        step_.h == 1 && step_.w == 1 && channel_ == 1;
    const auto stride = Access({images_, height_, width_}, {image_, line_, pixel_}).stride();
    if (!is_one || !stride || !numbers_.are_same()) return std::nullopt;
    return numbers_.stored_bytes() * *stride;
  }

 private:
  void gather_window(const std::byte* image, std::int64_t out_y, std::int64_t out_x,
                     std::byte* to) const {
    const std::int64_t size = numbers_.stored_bytes();
    const std::int64_t left = out_x * step_.w - padding_.w,
                       tap = numbers_.taken_bytes() * channels_;
    const bool in_a_row = channel_ == 1 && dilation_.w == 1 && pixel_ == channels_;
    for (std::int64_t ky = 0; ky < kernel_h_; ++ky) {
      const std::int64_t y = out_y * step_.h - padding_.h + ky * dilation_.h;
      if (y < 0 || y >= height_) {
        std::memset(to, 0, static_cast<std::size_t>(kernel_w_ * tap));
        to += kernel_w_ * tap;
        continue;
      }
      const std::byte* line = image + size * y * line_;
      if (in_a_row && left >= 0 && left + kernel_w_ <= width_) {
        numbers_.copy(to, line + size * left * pixel_, 1, kernel_w_ * channels_);
        to += kernel_w_ * tap;
        continue;
      }
      for (std::int64_t kx = 0; kx < kernel_w_; ++kx, to += tap) {
        const std::int64_t x = left + kx * dilation_.w;
        if (x < 0 || x >= width_)
          std::memset(to, 0, static_cast<std::size_t>(tap));
        else
          numbers_.copy(to, line + size * x * pixel_, channel_, channels_);
      }
    }
  }

  Numbers numbers_;
  std::int64_t images_, channels_, height_, width_, kernel_h_, kernel_w_, out_h_, out_w_;
  Pair step_, padding_, dilation_;
  std::int64_t image_, channel_, line_, pixel_;  // strides
};

}  // namespace

Numbers::Numbers(DType stored, DType taken)
    : stored_bytes_(item_size(stored)), taken_bytes_(item_size(taken)) {
  if (stored != taken) load_ = simd::table().load[static_cast<int>(stored)];
}

void Numbers::copy(std::byte* to, const std::byte* from, std::int64_t stride,
                   std::int64_t count) const {
  if (load_)
    load_(reinterpret_cast<float*>(to), from, stride, count);
  else if (stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(stored_bytes_ * count));
  else if (stored_bytes_ == 1)
    copy_strided<1>(to, from, stride, count);
  else if (stored_bytes_ == 2)
    copy_strided<2>(to, from, stride, count);
  else
    copy_strided<4>(to, from, stride, count);
}

std::unique_ptr<ProductRows> matrix_rows(const Layout& left, const Shape& result,
                                         const Numbers& numbers) {
  return std::make_unique<MatrixRows>(left, result, numbers);
}

std::unique_ptr<ProductRows> window_rows(const Layout& image, const Shape& weights,
                                         const Attrs& attributes, const Shape& result,
                                         const Numbers& numbers) {
  return std::make_unique<WindowRows>(image, weights, attributes, result, numbers);
}

}  // namespace tensor::cpu

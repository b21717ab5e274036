// From a whole image to a class map: in one piece, or by a window that slides over it.
#pragma once

#include <functional>
#include <vector>

#include "models/setr/setr.h"

namespace models::setr {

struct Window {
  std::int64_t top, left, height, width;
  friend bool operator==(const Window&, const Window&) = default;
};

/// How many windows of `crop` pixels every `stride` pixels cover an extent.
std::int64_t windows_along(std::int64_t extent, std::int64_t crop, std::int64_t stride);

/// Squares of `crop` every `stride` pixels; the last one of a row or column is moved back so that
/// it ends with the image. An image smaller than the crop has windows of its own extent.
std::vector<Window> slide_windows(std::int64_t height, std::int64_t width, std::int64_t crop,
                                  std::int64_t stride);

/// Two thirds of the crop: the 512, 341 and 320 of the released configurations for 768, 512 and
/// 480.
std::int64_t default_stride(std::int64_t crop);

/// The mean of the windows' logits [1, classes, H, W], where they overlap. `net` takes a window's
/// pixels to its logits [1, classes, h, w].
tensor::Tensor slide_logits(const std::function<tensor::Tensor(const tensor::Tensor&)>& net,
                            std::int64_t classes, const tensor::Tensor& pixels,
                            const std::vector<Window>& windows);

/// The class of every pixel, i64 [height, width], of logits [1, classes, h, w] resized (bilinear)
/// to that size. The first of equal classes wins.
tensor::Tensor class_map(const tensor::Tensor& logits, std::int64_t height, std::int64_t width);

}  // namespace models::setr

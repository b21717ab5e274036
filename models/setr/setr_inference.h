// From a whole image to a class map: in one piece, or by a window that slides over it.
#pragma once

#include <functional>
#include <vector>

#include "models/common/forward.h"
#include "models/common/preprocess.h"
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

/// What a window's logits are added to, on its way from image to image: takes the sums that the
/// map has there, [1, classes, h, w], and returns them with the window's logits.
using AddWindow = std::function<tensor::Tensor(const Window&, const tensor::Tensor& sums)>;

/// The sums of the windows' logits, [1, classes, height, width], on `device`.
tensor::Tensor slide_sums(const AddWindow& add, std::int64_t classes, Size map,
                          const std::vector<Window>& windows, const tensor::Device& device = {});
/// How many windows every pixel is in, f32 [1, 1, height, width].
tensor::Tensor count_windows(Size map, const std::vector<Window>& windows);

/// One step of `class_map`, in operators that can be traced. Of the classes from `first` on:
/// "sums" [1, some, h, w] and "counts" [1, 1, h, w]; of those before: "best", the mean logit of
/// every pixel's best class, f32 [height, width], and "labels", which class that is, i32. Returns
/// "best" and "labels".
tensor::nn::StateDict better_classes(const tensor::nn::StateDict& inputs);

/// The class of every pixel, i32 [height, width], of the means of windows' logits resized
/// (bilinear) to that size. The first of equal classes wins. At most about `most` logits are
/// enlarged at a time, because all classes at a photograph's size need not fit in memory.
tensor::Tensor class_map(const tensor::Tensor& sums, const tensor::Tensor& counts, Size image,
                         const Forward& step = better_classes,
                         std::int64_t most = std::int64_t{1} << 26);

}  // namespace models::setr

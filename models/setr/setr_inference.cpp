// Slide inference after mmsegmentation's encoder_decoder: window positions, sums, and the class
// map of their means.
#include "models/setr/setr_inference.h"

#include <algorithm>
#include <limits>

#include "tensor/tensor.h"

namespace models::setr {

using tensor::Tensor;
using tensor::nn::StateDict;

std::int64_t windows_along(std::int64_t extent, std::int64_t crop, std::int64_t stride) {
  return std::max<std::int64_t>(extent - crop + stride - 1, 0) / stride + 1;
}

std::vector<Window> slide_windows(std::int64_t height, std::int64_t width, std::int64_t crop,
                                  std::int64_t stride) {
  if (crop < 1 || stride < 1)
    tensor::fail("slide", "got a crop of ", crop, " and a stride of ", stride,
                 ", need both to be at least 1");
  std::vector<Window> windows;
  for (std::int64_t row = 0; row < windows_along(height, crop, stride); ++row) {
    for (std::int64_t column = 0; column < windows_along(width, crop, stride); ++column) {
      const std::int64_t bottom = std::min(row * stride + crop, height);
      const std::int64_t right = std::min(column * stride + crop, width);
      const std::int64_t top = std::max<std::int64_t>(bottom - crop, 0);
      const std::int64_t left = std::max<std::int64_t>(right - crop, 0);
      windows.push_back({top, left, bottom - top, right - left});
    }
  }
  return windows;
}

std::int64_t default_stride(std::int64_t crop) { return std::max<std::int64_t>(crop * 2 / 3, 1); }

namespace {

tensor::Slice rows_of(const Window& w) { return tensor::slice(w.top, w.top + w.height); }
tensor::Slice columns_of(const Window& w) { return tensor::slice(w.left, w.left + w.width); }

/// One number at every place, on a device that it is not copied to place by place.
Tensor everywhere(const Tensor& number, const tensor::Shape& shape, const tensor::Device& device) {
  return tensor::broadcast_to(number.to(device), shape);
}

}  // namespace

Tensor slide_sums(const AddWindow& add, std::int64_t classes, Size map,
                  const std::vector<Window>& windows, const tensor::Device& device) {
  constexpr std::int64_t kMaxScores = std::int64_t{1} << 31;
  if (classes > kMaxScores / (map.height * map.width))
    tensor::fail(kImage, "is ", map.width, " x ", map.height, " pixels after scaling: of ", classes,
                 " classes these are more than ", kMaxScores,
                 " scores: give --scale smaller edges");
  Tensor sums = everywhere(tensor::zeros({}), {1, classes, map.height, map.width}, device).copy();
  for (const Window& window : windows) {
    Tensor part = sums(tensor::ellipsis, rows_of(window), columns_of(window));
    part(tensor::ellipsis) = add(window, part);
  }
  return sums;
}

Tensor count_windows(Size map, const std::vector<Window>& windows) {
  Tensor counts = tensor::zeros({1, 1, map.height, map.width});
  for (const Window& window : windows)
    counts(tensor::ellipsis, rows_of(window), columns_of(window)) += 1;
  return counts;
}

StateDict better_classes(const StateDict& inputs) {
  const Tensor &best = inputs.at("best"), &labels = inputs.at("labels");
  const Tensor means = inputs.at("sums") / inputs.at("counts");
  const Tensor scores = tensor::interpolate(means, {best.shape(0), best.shape(1)},
                                            {.mode = tensor::Interpolation::bilinear})(0);
  Tensor highest = scores(0), label = inputs.at("first");
  if (scores.shape(0) > 1) {
    highest = tensor::max(scores, 0);
    label = label + tensor::argmax(scores, 0).astype(tensor::i32);
  }
  const Tensor better = highest > best;
  return {{"best", tensor::where(better, highest, best)},
          {"labels", tensor::where(better, label, labels)}};
}

Tensor class_map(const Tensor& sums, const Tensor& counts, Size image, const Forward& step,
                 std::int64_t most) {
  const std::int64_t classes = sums.shape(1);
  const std::int64_t room = std::max<std::int64_t>(most / (image.height * image.width), 1);
  const std::int64_t groups = (classes + room - 1) / room, size = (classes + groups - 1) / groups;
  const tensor::Shape map{image.height, image.width};
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Tensor best = everywhere(tensor::full({}, kLowest, tensor::f32), map, sums.device());
  Tensor labels = everywhere(tensor::zeros({}, tensor::i32), map, sums.device());
  for (std::int64_t first = 0; first < classes; first += size) {
    const tensor::Slice group = tensor::slice(first, std::min(first + size, classes));
    const StateDict found = step({{"sums", sums(tensor::all_of_axis, group)},
                                  {"counts", counts},
                                  {"best", best},
                                  {"labels", labels},
                                  {"first", tensor::full({}, first, tensor::i32)}});
    best = output(found, "best", map), labels = output(found, "labels", map);
  }
  return labels;
}

}  // namespace models::setr

// Slide inference after mmsegmentation's encoder_decoder: window positions, averaging, and the
// class map.
#include "models/setr/setr_inference.h"

#include <algorithm>

#include "models/common/preprocess.h"
#include "tensor/tensor.h"

namespace models::setr {

using tensor::Tensor;

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

Tensor slide_logits(const std::function<Tensor(const Tensor&)>& net, std::int64_t classes,
                    const Tensor& pixels, const std::vector<Window>& windows) {
  const std::int64_t height = pixels.shape(2), width = pixels.shape(3);
  constexpr std::int64_t kMaxScores = std::int64_t{1} << 31;
  if (classes > kMaxScores / (height * width))
    tensor::fail(kImage, "is ", width, " x ", height, " pixels after scaling: of ", classes,
                 " classes these are more than ", kMaxScores,
                 " scores: give --scale smaller edges");
  Tensor sum = tensor::zeros({1, classes, height, width}).to(pixels.device());
  Tensor count = tensor::zeros({1, 1, height, width}).to(pixels.device());
  for (const Window& window : windows) {
    const tensor::Slice rows = tensor::slice(window.top, window.top + window.height);
    const tensor::Slice columns = tensor::slice(window.left, window.left + window.width);
    const Tensor crop = pixels(tensor::ellipsis, rows, columns);
    sum(tensor::ellipsis, rows, columns) += net(crop);
    count(tensor::ellipsis, rows, columns) += 1;
  }
  return sum / count;
}

Tensor class_map(const Tensor& logits, std::int64_t height, std::int64_t width) {
  // One class after the other: all of them at a photograph's size need not fit in memory.
  Tensor best, label;
  for (std::int64_t k = 0; k < logits.shape(1); ++k) {
    const Tensor score =
        tensor::interpolate(logits(tensor::all_of_axis, tensor::slice(k, k + 1)), {height, width},
                            {.mode = tensor::Interpolation::bilinear});
    if (k == 0) {
      best = score;
      label = tensor::zeros({1, 1, height, width}, tensor::i64).to(logits.device());
      continue;
    }
    const Tensor better = score > best;
    label = tensor::where(better, k, label);
    best = tensor::where(better, score, best);
  }
  return label.reshape({height, width});
}

}  // namespace models::setr

// What all models of pictures share.
#include "models/common/vision_model.h"

namespace models {

using tensor::Tensor;

Preparation preparation(const Preprocessing& rule) {
  return {
      .size = [rule](Size picture) { return preprocessed_size(picture, rule); },
      .fit = [rule](const Tensor& picture) { return fit_levels(picture, rule); },
      .normalize =
          [rule](const Tensor& levels) {
            return normalize(levels, rule.normalization).expand_dims(0);
          },
      .normalize_levels =
          [rule](const Tensor& levels) { return normalize_levels(levels, rule.normalization); }};
}

void check_pixels(const Tensor& pixels, std::int64_t channels, Size least) {
  if (pixels.rank() != 4 || pixels.shape(1) != channels)
    tensor::fail("pixel_values", "got ", pixels.shape(), ", need (batch, ", channels,
                 ", height, width)");
  if (pixels.shape(2) < least.height || pixels.shape(3) < least.width)
    tensor::fail("pixel_values", "got an image of ", pixels.shape(2), " x ", pixels.shape(3),
                 ", smaller than a patch of ", least.height, " x ", least.width);
}

Tensor as_tokens(const Tensor& map) {
  return map.reshape({map.shape(0), map.shape(1), -1}).swapaxes(1, 2);
}

Tensor as_map(const Tensor& tokens, Size grid) {
  return tokens.swapaxes(1, 2).reshape({tokens.shape(0), tokens.shape(2), grid.height, grid.width});
}

}  // namespace models

// MobileNetV3-Large (Howard et al., 2019), as torchvision has it: narrow images that are widened,
// filtered channel by channel, weighed by their means, and narrowed again.
#pragma once

#include <vector>

#include "models/common/conv_norm.h"
#include "models/common/preprocess.h"

namespace bench {

/// What a channel is multiplied by, made of the means of all channels.
struct SqueezeExcitation {
  tensor::nn::Conv2d fc1, fc2;
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("fc1", fc1), visit("fc2", fc2); }
};

struct InvertedResidual {
  models::ConvNorm widen, filter, narrow;  // the first is absent where the image is wide enough
  SqueezeExcitation excitation;            // or undefined
  bool is_hardswish = false, is_residual = false;

  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("widen", widen), visit("filter", filter);
    visit("excitation", excitation), visit("narrow", narrow);
  }
};

struct MobileNetV3 {
  models::ConvNorm stem;
  std::vector<InvertedResidual> blocks;
  models::ConvNorm last;
  tensor::nn::Linear fc1, fc2;

  static MobileNetV3 large();
  /// [B, 3, H, W] to the logits [B, 1000].
  tensor::Tensor operator()(const tensor::Tensor& pixels) const;
  void members(auto&& visit) {
    visit("stem", stem), visit("blocks", blocks), visit("last", last);
    visit("fc1", fc1), visit("fc2", fc2);
  }
};

/// Multiply-adds of one image.
std::int64_t macs(const MobileNetV3& net, models::Size image);

}  // namespace bench

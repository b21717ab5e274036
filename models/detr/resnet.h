// ResNet v1.5 (the stride sits on the 3x3 convolution): the body of DETR, without pooling and
// classifier.
#pragma once

#include <vector>

#include "models/common/conv_norm.h"
#include "models/common/observer.h"

namespace models::detr {

struct ResNetConfig {
  struct Stage {
    std::int64_t blocks, width, out;  // width: channels of a block's inner convolutions
  };
  std::int64_t channels = 3, stem = 64;
  std::vector<Stage> stages;
  bool basic = false;    // blocks of two 3x3 convolutions (ResNet-18, -34) instead of 1x1, 3x3, 1x1
  bool dilated = false;  // DC5: the last stage keeps its input's size and dilates instead

  static ResNetConfig resnet50() {
    return {.stages = {{3, 64, 256}, {4, 128, 512}, {6, 256, 1024}, {3, 512, 2048}}};
  }
  static ResNetConfig resnet101() {
    return {.stages = {{3, 64, 256}, {4, 128, 512}, {23, 256, 1024}, {3, 512, 2048}}};
  }
};

struct ResNetBlock {
  std::vector<ConvNorm> layers;
  ConvNorm shortcut;  // absent where input and output agree in shape

  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("layers", layers), visit("shortcut", shortcut); }
};

struct ResNet {
  ConvNorm stem;
  std::vector<std::vector<ResNetBlock>> stages;

  static ResNet sized(const ResNetConfig& config);
  /// [B, channels, H, W] to the last stage's [B, out, H / 32, W / 32], rounded up; / 16 when
  /// dilated. Each stage's output is observed as "backbone.N".
  tensor::Tensor operator()(const tensor::Tensor& pixels, const Observer& observe = {}) const;
  void members(auto&& visit) { visit("stem", stem), visit("stages", stages); }
};

}  // namespace models::detr

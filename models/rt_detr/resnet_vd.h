// ResNet-vd (He et al., "Bag of Tricks", 2018), the body of RT-DETR: its stem is three
// convolutions, and shortcuts average pixels before they are projected. Members are called as in
// transformers' checkpoints but for those of ConvNorm.
#pragma once

#include <vector>

#include "models/common/conv_norm.h"
#include "models/common/observer.h"

namespace models::rt_detr {

struct ResNetVdConfig {
  std::int64_t channels = 3, stem = 64;
  std::vector<std::int64_t> widths = {256, 512, 1024, 2048}, depths = {3, 4, 6, 3};
  bool is_basic = false;  // blocks of two 3x3 convolutions (18, 34) instead of 1x1, 3x3, 1x1
};

struct VdBlock {
  std::vector<ConvNorm> layers;
  ConvNorm shortcut;  // absent where input and output agree in shape
  bool is_pooled = false;

  static VdBlock sized(std::int64_t in, std::int64_t out, std::int64_t stride, bool is_first,
                       bool is_basic);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("layer", layers), visit(is_pooled ? "shortcut.1" : "shortcut", shortcut);
  }
};

struct VdStage {
  std::vector<VdBlock> layers;
  void members(auto&& visit) { visit("layers", layers); }
};

struct ResNetVd {
  std::vector<ConvNorm> stem;
  std::vector<VdStage> stages;

  static ResNetVd sized(const ResNetVdConfig& config);
  /// [B, channels, H, W] to every stage's output, of H / 4, H / 8 ... rows. They are observed as
  /// "backbone.N".
  std::vector<tensor::Tensor> operator()(const tensor::Tensor& pixels,
                                         const Observer& observe) const;
  void members(auto&& visit) { visit("embedder.embedder", stem), visit("encoder.stages", stages); }
};

}  // namespace models::rt_detr

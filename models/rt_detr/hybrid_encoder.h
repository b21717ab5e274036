// RT-DETR's encoder: attention within the smallest map, and convolutions that exchange features
// between maps of several sizes, down and up again. Members are called as in transformers'
// checkpoints but for those of the attention layers.
#pragma once

#include <vector>

#include "models/common/conv_norm.h"
#include "models/common/vision_model.h"
#include "models/detr/detr.h"

namespace models::rt_detr {

struct EncoderConfig {
  std::int64_t width = 256, layers = 1, heads = 8, ffn = 1024;
  std::vector<std::int64_t> attended = {2};  // maps, of which 0 is the largest
  std::size_t maps = 3;
  double expansion = 1;  // of the inner convolutions' features
  double temperature = 10000, batch_norm_eps = 1e-5, layer_norm_eps = 1e-5;
  Activation activation = tensor::silu, ffn_activation = tensor::gelu;
};

/// A 3x3 and a 1x1 convolution of the same features, added (RepVGG).
struct RepBlock {
  ConvNorm conv1, conv2;
  void members(auto&& visit) { visit("conv1", conv1), visit("conv2", conv2); }
};

/// Blocks beside a projection (Cross Stage Partial).
struct CspLayer {
  ConvNorm conv1, conv2, conv3;  // the last one is absent where all are as wide
  std::vector<RepBlock> bottlenecks;
  Activation activation = tensor::silu;

  static CspLayer sized(const EncoderConfig& config);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("conv1", conv1), visit("conv2", conv2), visit("bottlenecks", bottlenecks);
    visit("conv3", conv3);
  }
};

/// The attention layers of one map.
struct MapAttention {
  std::vector<detr::EncoderLayer> layers;
  void members(auto&& visit) { visit("layers", layers); }
};

struct HybridEncoder {
  std::vector<MapAttention> attention;  // of the attended maps
  std::vector<std::int64_t> attended;
  std::vector<ConvNorm> lateral, downsample;
  std::vector<CspLayer> down, up;
  double temperature = 10000;
  Activation activation = tensor::silu;

  static HybridEncoder sized(const EncoderConfig& config);
  /// Maps [B, width, h, w], the largest first, each half as large as the one before it. Those it
  /// gives are observed as "encoder_maps.N".
  std::vector<tensor::Tensor> operator()(std::vector<tensor::Tensor> maps,
                                         const Observer& observe) const;
  void members(auto&& visit) {
    visit("encoder", attention), visit("lateral_convs", lateral), visit("fpn_blocks", down);
    visit("downsample_convs", downsample), visit("pan_blocks", up);
  }
};

/// Where the cells of a grid are, f32 [1, h w, width]: sines and cosines of the row, then of the
/// column.
tensor::Tensor sine_position(Size grid, std::int64_t width, double temperature);

}  // namespace models::rt_detr

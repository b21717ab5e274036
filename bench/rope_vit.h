// A ViT-B/16 in the manner of language models: RMS norms, rotated queries and keys, gated MLPs, and
// no class token.
#pragma once

#include <vector>

#include "models/common/preprocess.h"
#include "tensor/nn.h"

namespace bench {

/// What turns the features of a head, f32 [tokens, features of a head] each.
struct Turn {
  tensor::Tensor cosines, sines;
  static Turn of(std::int64_t tokens, std::int64_t features);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
};

struct RopeLayer {
  tensor::Tensor norm1, norm2;  // [width]
  tensor::nn::Linear qkv, output, gate, up, down;
  std::int64_t heads = 12;

  static RopeLayer sized(std::int64_t width, std::int64_t heads, std::int64_t mlp);
  tensor::Tensor operator()(const tensor::Tensor& x, const Turn& turn) const;
  void members(auto&& visit) {
    visit("norm1.weight", norm1), visit("norm2.weight", norm2), visit("qkv", qkv);
    visit("output", output), visit("gate", gate), visit("up", up), visit("down", down);
  }
};

struct RopeVit {
  tensor::nn::Conv2d patches;
  std::vector<RopeLayer> layers;
  tensor::Tensor norm;

  static RopeVit base();
  /// [B, 3, H, W] to the mean of the patches, [B, width].
  tensor::Tensor operator()(const tensor::Tensor& pixels) const;
  void members(auto&& visit) {
    visit("patches", patches), visit("layers", layers), visit("norm.weight", norm);
  }
};

/// Multiply-adds of one image.
std::int64_t macs(const RopeVit& net, models::Size image);

}  // namespace bench

// A U-Net of residual blocks with group norms, as diffusion models have them, without attention.
#pragma once

#include <vector>

#include "models/common/preprocess.h"
#include "tensor/nn.h"

namespace bench {

/// Of 32 groups, with SiLU behind it.
struct ActivatedNorm {
  tensor::Tensor weight, bias;
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

struct UnetBlock {
  ActivatedNorm norm1, norm2;
  tensor::nn::Conv2d conv1, conv2, shortcut;  // the last is undefined where the widths agree

  static UnetBlock sized(std::int64_t in, std::int64_t out);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("norm1", norm1), visit("norm2", norm2);
    visit("conv1", conv1), visit("conv2", conv2), visit("shortcut", shortcut);
  }
};

struct Unet {
  tensor::nn::Conv2d first, last;
  std::vector<UnetBlock> down;
  std::vector<tensor::nn::Conv2d> halve;
  UnetBlock middle;
  std::vector<UnetBlock> up;

  /// Three levels of 64, 128 and 256 features.
  static Unet standard();
  /// [B, 3, H, W] to the same.
  tensor::Tensor operator()(const tensor::Tensor& pixels) const;
  void members(auto&& visit) {
    visit("first", first), visit("down", down), visit("halve", halve);
    visit("middle", middle), visit("up", up), visit("last", last);
  }
};

/// Multiply-adds of one image.
std::int64_t macs(const Unet& net, models::Size image);

}  // namespace bench

// ConvNorm: a convolution and the batch normalisation of its result, the unit of ResNet and of
// SETR's heads.
#pragma once

#include "tensor/nn.h"

namespace models {

/// Default-constructed it is absent: it has no parameters and must not be called.
struct ConvNorm {
  tensor::nn::Conv2d conv;
  tensor::nn::BatchNorm2d norm;

  /// A square kernel that keeps the size at stride 1.
  static ConvNorm sized(std::int64_t in, std::int64_t out, std::int64_t kernel,
                        std::int64_t stride = 1, std::int64_t dilation = 1,
                        bool with_bias = false) {
    const tensor::Conv2dOptions options{
        .stride = stride, .padding = dilation * (kernel / 2), .dilation = dilation};
    return {tensor::nn::Conv2d::sized(in, out, kernel, options, with_bias),
            tensor::nn::BatchNorm2d::sized(out)};
  }
  bool present() const { return conv.weight.defined(); }
  tensor::Tensor operator()(const tensor::Tensor& x) const { return norm(conv(x)); }
  void members(auto&& visit) { visit("conv", conv), visit("norm", norm); }
};

}  // namespace models

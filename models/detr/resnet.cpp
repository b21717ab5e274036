// The blocks of ResNet (He et al., 2015) and how they are strung together.
#include "models/detr/resnet.h"

namespace models::detr {

using tensor::Tensor;

namespace {

ResNetBlock sized_block(std::int64_t in, const ResNetConfig::Stage& stage, std::int64_t stride,
                        std::int64_t first_dilation, std::int64_t dilation, bool basic) {
  ResNetBlock block;
  if (basic)
    block.layers = {ConvNorm::sized(in, stage.width, 3, stride, first_dilation),
                    ConvNorm::sized(stage.width, stage.out, 3, 1, dilation)};
  else
    block.layers = {ConvNorm::sized(in, stage.width, 1),
                    ConvNorm::sized(stage.width, stage.width, 3, stride, first_dilation),
                    ConvNorm::sized(stage.width, stage.out, 1)};
  if (in != stage.out || stride != 1) block.shortcut = ConvNorm::sized(in, stage.out, 1, stride);
  return block;
}

}  // namespace

Tensor ResNetBlock::operator()(const Tensor& x) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers.size(); ++i)
    y = i + 1 < layers.size() ? tensor::relu(layers[i](y)) : layers[i](y);
  return tensor::relu(y + (shortcut.present() ? shortcut(x) : x));
}

ResNet ResNet::sized(const ResNetConfig& config) {
  ResNet net{ConvNorm::sized(config.channels, config.stem, 7, 2), {}};
  std::int64_t in = config.stem;
  for (std::size_t s = 0; s < config.stages.size(); ++s) {
    const bool dilate = config.dilated && s + 1 == config.stages.size();
    std::vector<ResNetBlock>& blocks = net.stages.emplace_back();
    for (std::int64_t b = 0; b < config.stages[s].blocks; ++b) {
      // Without its stride, a stage dilates whatever comes after the strided convolution.
      const std::int64_t stride = b == 0 && s > 0 && !dilate ? 2 : 1;
      const std::int64_t dilation = dilate ? 2 : 1, first_dilation = b > 0 ? dilation : 1;
      blocks.push_back(
          sized_block(in, config.stages[s], stride, first_dilation, dilation, config.basic));
      in = config.stages[s].out;
    }
  }
  return net;
}

Tensor ResNet::operator()(const Tensor& pixels, const Observer& observe) const {
  Tensor x = tensor::max_pool2d(tensor::relu(stem(pixels)), 3, 2, 1);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const ResNetBlock& block : stages[s]) x = block(x);
    observed(observe, "backbone." + std::to_string(s), x);
  }
  return x;
}

}  // namespace models::detr

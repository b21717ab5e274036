// The blocks of ResNet-vd and how they are strung together.
#include "models/rt_detr/resnet_vd.h"

namespace models::rt_detr {

using tensor::Tensor;

VdBlock VdBlock::sized(std::int64_t in, std::int64_t out, std::int64_t stride, bool is_first,
                       bool is_basic) {
  VdBlock block;
  const std::int64_t inner = out / 4;
  if (is_basic)
    block.layers = {ConvNorm::sized(in, out, 3, stride), ConvNorm::sized(out, out, 3)};
  else
    block.layers = {ConvNorm::sized(in, inner, 1), ConvNorm::sized(inner, inner, 3, stride),
                    ConvNorm::sized(inner, out, 1)};
  // As transformers has it: a basic stage begins with a projection even of an equal shape.
  const bool is_projected = is_basic ? is_first : in != out || stride != 1;
  block.is_pooled = is_projected && (is_basic ? in != out : stride != 1);
  if (is_projected) block.shortcut = ConvNorm::sized(in, out, 1, block.is_pooled ? 1 : stride);
  return block;
}

Tensor VdBlock::operator()(const Tensor& x) const {
  Tensor y = x, kept = x;
  for (std::size_t i = 0; i < layers.size(); ++i)
    y = i + 1 < layers.size() ? tensor::relu(layers[i](y)) : layers[i](y);
  if (is_pooled) kept = tensor::avg_pool2d(x, 2, 2, 0, true);
  return tensor::relu(y + (shortcut.present() ? shortcut(kept) : kept));
}

ResNetVd ResNetVd::sized(const ResNetVdConfig& c) {
  const std::int64_t half = c.stem / 2;
  ResNetVd net{.stem = {ConvNorm::sized(c.channels, half, 3, 2), ConvNorm::sized(half, half, 3),
                        ConvNorm::sized(half, c.stem, 3)},
               .stages = {}};
  std::int64_t in = c.stem;
  for (std::size_t s = 0; s < c.widths.size(); ++s) {
    VdStage& stage = net.stages.emplace_back();
    for (std::int64_t b = 0; b < c.depths[s]; ++b) {
      const std::int64_t stride = b == 0 && s > 0 ? 2 : 1;
      stage.layers.push_back(VdBlock::sized(in, c.widths[s], stride, b == 0, c.is_basic));
      in = c.widths[s];
    }
  }
  return net;
}

std::vector<Tensor> ResNetVd::operator()(const Tensor& pixels, const Observer& observe) const {
  Tensor x = pixels;
  for (const ConvNorm& layer : stem) x = tensor::relu(layer(x));
  x = tensor::max_pool2d(x, 3, 2, 1);
  std::vector<Tensor> maps;
  for (const VdStage& stage : stages) {
    for (const VdBlock& block : stage.layers) x = block(x);
    observed(observe, "backbone." + std::to_string(maps.size()), x);
    maps.push_back(x);
  }
  return maps;
}

}  // namespace models::rt_detr

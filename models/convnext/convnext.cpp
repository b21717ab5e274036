// ConvNeXt's forward pass: pure functions of tensors, so that it can be traced.
#include "models/convnext/convnext.h"

#include <algorithm>

namespace models::convnext {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

constexpr double kEps = 1e-6;  // of all norms but the last

Tensor pixels_last(const Tensor& x) { return x.transpose({0, 2, 3, 1}); }
Tensor pixels_first(const Tensor& x) { return x.transpose({0, 3, 1, 2}); }

}  // namespace

Tensor ResponseNorm::operator()(const Tensor& x) const {
  const Tensor size = tensor::sqrt(tensor::sum(tensor::square(x), {1, 2}, true));
  return weight * (x * (size / (tensor::mean(size, -1, true) + kEps))) + bias + x;
}

ConvNextLayer ConvNextLayer::sized(std::int64_t width, const ConvNextConfig& c) {
  const std::int64_t inner = 4 * width;
  ConvNextLayer layer{.dwconv = nn::Conv2d::sized(width, width, 7, {.padding = 3, .groups = width}),
                      .layernorm = nn::LayerNorm::sized(width, kEps),
                      .pwconv1 = nn::Linear::sized(width, inner),
                      .pwconv2 = nn::Linear::sized(inner, width),
                      .grn = {},
                      .scale = {},
                      .activation = c.activation};
  if (c.is_v2) layer.grn = {nn::parameter({1, 1, 1, inner}), nn::parameter({1, 1, 1, inner})};
  if (!c.is_v2 && c.layer_scale) layer.scale = nn::parameter({width});
  return layer;
}

Tensor ConvNextLayer::operator()(const Tensor& x) const {
  Tensor y = activation(pwconv1(layernorm(pixels_last(dwconv(x)))));
  if (grn.weight.defined()) y = grn(y);
  y = pwconv2(y);
  if (scale.defined()) y = y * scale;
  return x + pixels_first(y);
}

Tensor ConvNextStage::operator()(const Tensor& x) const {
  Tensor y = x;
  if (downsample.weight.defined()) y = downsample(pixels_first(norm(pixels_last(y))));
  for (const ConvNextLayer& layer : layers) y = layer(y);
  return y;
}

ConvNext ConvNext::sized(const ConvNextConfig& c) {
  ConvNext net{.patches = nn::Conv2d::sized(c.channels, c.widths[0], c.patch, {.stride = c.patch}),
               .patch_norm = nn::LayerNorm::sized(c.widths[0], kEps),
               .stages = {},
               .norm = nn::LayerNorm::sized(c.widths.back(), c.eps),
               .classifier = {}};
  for (std::size_t i = 0; i < c.widths.size(); ++i) {
    ConvNextStage stage;
    if (i > 0) {
      stage.norm = nn::LayerNorm::sized(c.widths[i - 1], kEps);
      stage.downsample = nn::Conv2d::sized(c.widths[i - 1], c.widths[i], 2, {.stride = 2});
    }
    for (std::int64_t k = 0; k < c.depths[i]; ++k)
      stage.layers.push_back(ConvNextLayer::sized(c.widths[i], c));
    net.stages.push_back(std::move(stage));
  }
  if (c.classes > 0) net.classifier = nn::Linear::sized(c.widths.back(), c.classes);
  return net;
}

nn::StateDict ConvNext::operator()(const Tensor& pixels, const Observer& observe) const {
  const std::int64_t least = patches.weight.shape(2) << (stages.size() - 1);
  check_pixels(pixels, patches.weight.shape(1), {least, least});
  Tensor x = pixels_first(patch_norm(pixels_last(patches(pixels))));
  observed(observe, "hidden_states.0", x);
  for (std::size_t i = 0; i < stages.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), stages[i](x));
  const Tensor pooled = norm(tensor::mean(x, {2, 3}));
  if (classifier.weight.defined()) return {{"logits", classifier(pooled)}};
  return {{"last_hidden_state", x}, {"pooler_output", pooled}};
}

Info describe(const std::string& name, ConvNext& model) {
  std::int64_t h = model.image.height / model.patches.weight.shape(2);
  std::int64_t w = model.image.width / model.patches.weight.shape(3);
  Info info{.model = name,
            .input = shape_text(model.patches.weight.shape(1), model.image),
            .rows = {},
            .peak_activations = 0};
  info.rows.push_back({"embeddings", 1,
                       nn::parameter_count(model.patches) + nn::parameter_count(model.patch_norm),
                       conv2d_macs(model.patches.weight.shape(), h, w)});
  for (std::size_t i = 0; i < model.stages.size(); ++i) {
    ConvNextStage& stage = model.stages[i];
    InfoRow row{.part = "stage " + std::to_string(i + 1), .layers = std::ssize(stage.layers)};
    row.parameters = nn::parameter_count(stage);
    if (i > 0) row.macs = conv2d_macs(stage.downsample.weight.shape(), h /= 2, w /= 2);
    for (const ConvNextLayer& layer : stage.layers)
      row.macs +=
          conv2d_macs(layer.dwconv.weight.shape(), h, w) + h * w * 2 * layer.pwconv1.weight.size();
    // Alive at once: the image, and the MLP's inner layer before and after its activation.
    info.peak_activations =
        std::max(info.peak_activations, h * w * 9 * stage.layers.front().dwconv.weight.shape(0));
    info.rows.push_back(row);
  }
  add_head(info, model.norm, model.classifier);
  return info;
}

}  // namespace models::convnext

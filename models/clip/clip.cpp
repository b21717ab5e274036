// The image towers' forward pass: pure functions of tensors, so that it can be traced.
#include "models/clip/clip.h"

namespace models::clip {

namespace nn = tensor::nn;
using tensor::Tensor;

Tensor AttentionPooling::operator()(const Tensor& x) const {
  const Tensor query = tensor::broadcast_to(probe, {x.shape(0), 1, x.shape(2)});
  const Tensor y = attention(query, x, x);
  return (y + fc2(activation(fc1(norm(y)))))(tensor::all_of_axis, 0);
}

ClipTower ClipTower::sized(const ClipConfig& c) {
  const std::int64_t count = c.image.height / c.patch * (c.image.width / c.patch);
  const bool is_clip = !c.is_siglip;
  ClipTower net{
      .class_token = is_clip ? nn::parameter({c.width}) : Tensor(),
      .position = nn::parameter({count + is_clip, c.width}),
      .patches = nn::Conv2d::sized(c.channels, c.width, c.patch, {.stride = c.patch}, !is_clip),
      .norm_before = is_clip ? nn::LayerNorm::sized(c.width, c.eps) : nn::LayerNorm(),
      .norm_after = nn::LayerNorm::sized(c.width, c.eps),
      .layers = {},
      .pooling = {},
      .projection = {},
      .classifier = {},
      .image = c.image,
      .any_size = c.any_size};
  const vit::VitConfig layer{
      .width = c.width, .heads = c.heads, .mlp = c.mlp, .eps = c.eps, .activation = c.activation};
  for (std::int64_t i = 0; i < c.layers; ++i) net.layers.push_back({vit::VitLayer::sized(layer)});
  if (c.is_siglip && c.has_pooling)
    net.pooling = {
        nn::parameter({1, 1, c.width}),       nn::MultiheadAttention::sized(c.width, c.heads),
        nn::LayerNorm::sized(c.width, c.eps), nn::Linear::sized(c.width, c.mlp),
        nn::Linear::sized(c.mlp, c.width),    c.activation};
  if (c.projection > 0) net.projection = nn::Linear::sized(c.width, c.projection, false);
  if (c.classes > 0) net.classifier = nn::Linear::sized(c.width, c.classes);
  return net;
}

Tensor ClipTower::embed(const Tensor& pixels) const {
  const tensor::Shape& kernel = patches.weight.shape();
  check_pixels(pixels, kernel[1], {kernel[2], kernel[3]});
  const Size size{pixels.shape(2), pixels.shape(3)};
  if (!(size == image) && !any_size)
    tensor::fail("pixel_values", "got an image of ", size.height, " x ", size.width,
                 ", the model takes ", image.height, " x ", image.width,
                 ": resize it, or ask for a resized position embedding "
                 "(--interpolate-pos-encoding)");
  const Tensor map = patches(pixels);
  Tensor x = as_tokens(map), where = position.expand_dims(0);
  if (!is_siglip()) {
    const Tensor token = tensor::broadcast_to(class_token, {map.shape(0), 1, map.shape(1)});
    x = tensor::concatenate({token, x}, 1);
  }
  if (!(size == image))
    where = vit::resized_position(where, is_siglip() ? 0 : 1, {map.shape(2), map.shape(3)}, false);
  x = x + where;
  return norm_before.weight.defined() ? norm_before(x) : x;
}

nn::StateDict ClipTower::operator()(const Tensor& pixels, const Observer& observe) const {
  Tensor x = observed(observe, "hidden_states.0", embed(pixels));
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), layers[i](x));
  if (is_siglip()) x = norm_after(x);
  if (classifier.weight.defined()) {
    const std::int64_t before = is_siglip() ? 0 : 1;
    const Tensor of_patches = x(tensor::all_of_axis, tensor::slice(before, tensor::none));
    return {{"logits", classifier(tensor::mean(of_patches, 1))}};
  }
  nn::StateDict outputs{{"last_hidden_state", x}};
  Tensor pooled;
  if (!is_siglip()) pooled = norm_after(x(tensor::all_of_axis, 0));
  if (pooling.probe.defined()) pooled = pooling(x);
  if (pooled.defined()) outputs.emplace("pooler_output", pooled);
  if (projection.weight.defined()) outputs.emplace("image_embeds", projection(pooled));
  return outputs;
}

Info describe(const std::string& name, ClipTower& model) {
  const tensor::Shape& kernel = model.patches.weight.shape();
  const std::int64_t h = model.image.height / kernel[2], w = model.image.width / kernel[3];
  const std::int64_t tokens = model.position.shape(0), width = kernel[0];
  const vit::VitLayer& first = model.layers.front().layer;
  const std::int64_t mlp = first.fc1.weight.shape(0);
  InfoRow embeddings{.part = "embeddings"};
  embeddings.parameters = model.position.size() + nn::parameter_count(model.patches);
  if (model.class_token.defined()) embeddings.parameters += model.class_token.size();
  embeddings.macs = conv2d_macs(kernel, h, w);
  InfoRow layers{.part = "layers", .layers = std::ssize(model.layers)};
  for (ClipLayer& each : model.layers) layers.parameters += nn::parameter_count(each);
  layers.macs = layers.layers * transformer_macs(tokens, width, 2 * width * mlp);
  InfoRow norms{.part = "norms", .layers = 1};
  norms.parameters = nn::parameter_count(model.norm_before) + nn::parameter_count(model.norm_after);
  Info info{.model = name,
            .input = shape_text(kernel[1], model.image),
            .rows = {embeddings, layers, norms},
            .peak_activations = transformer_peak(tokens, width, first.attention.heads, mlp)};
  if (model.pooling.probe.defined())
    info.rows.push_back({"pooling", 1, nn::parameter_count(model.pooling),
                         2 * linear_macs(tokens + 1, width, width) +
                             attention_macs(1, tokens, width) + 2 * linear_macs(1, width, mlp)});
  for (const auto& [part, linear] :
       {std::pair("projection", &model.projection), {"classifier", &model.classifier}})
    if (linear->weight.defined())
      info.rows.push_back({part, 1, nn::parameter_count(*linear), linear->weight.size()});
  return info;
}

}  // namespace models::clip

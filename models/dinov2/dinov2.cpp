// DINOv2's forward pass: pure functions of tensors, so that it can be traced.
#include "models/dinov2/dinov2.h"

namespace models::dinov2 {

namespace nn = tensor::nn;
using tensor::Tensor;

Dinov2Layer Dinov2Layer::sized(const Dinov2Config& c) {
  return {nn::LayerNorm::sized(c.width, c.eps),
          nn::LayerNorm::sized(c.width, c.eps),
          nn::MultiheadAttention::sized(c.width, c.heads, c.qkv_bias),
          nn::parameter({c.width}),
          nn::parameter({c.width}),
          nn::Linear::sized(c.width, c.is_gated ? 2 * c.mlp : c.mlp),
          nn::Linear::sized(c.mlp, c.width),
          c.is_gated,
          c.activation};
}

Tensor Dinov2Layer::mlp(const Tensor& x) const {
  const Tensor inner = in(x);
  if (!is_gated) return out(activation(inner));
  const std::vector<Tensor> halves = tensor::split(inner, 2, -1);
  return out(tensor::silu(halves[0]) * halves[1]);
}

Tensor Dinov2Layer::operator()(const Tensor& x) const {
  const Tensor normed = norm1(x);
  const Tensor y = x + attention(normed, normed, normed) * scale1;
  return y + mlp(norm2(y)) * scale2;
}

Dinov2 Dinov2::sized(const Dinov2Config& c) {
  const std::int64_t count = c.image.height / c.patch * (c.image.width / c.patch);
  Dinov2 net{.cls_token = nn::parameter({1, 1, c.width}),
             .registers = {},
             .position = nn::parameter({1, 1 + count, c.width}),
             .patches = nn::Conv2d::sized(c.channels, c.width, c.patch, {.stride = c.patch}),
             .layers = {},
             .norm = nn::LayerNorm::sized(c.width, c.eps),
             .classifier = {},
             .image = c.image};
  if (c.registers > 0) net.registers = nn::parameter({1, c.registers, c.width});
  for (std::int64_t i = 0; i < c.layers; ++i) net.layers.push_back(Dinov2Layer::sized(c));
  if (c.classes > 0) net.classifier = nn::Linear::sized(2 * c.width, c.classes);
  return net;
}

Tensor Dinov2::embed(const Tensor& pixels) const {
  const tensor::Shape& kernel = patches.weight.shape();
  check_pixels(pixels, kernel[1], {kernel[2], kernel[3]});
  const Tensor map = patches(pixels);
  const Size grid{map.shape(2), map.shape(3)};
  const auto of_all = [&](const Tensor& tokens) {
    return tensor::broadcast_to(tokens, {map.shape(0), tokens.shape(1), tokens.shape(2)});
  };
  const bool is_trained =
      grid.height == grid.width && grid.height * grid.width == position.shape(1) - 1;
  // Only the model with registers was made with an antialiased embedding.
  const Tensor where =
      is_trained ? position : vit::resized_position(position, 1, grid, registers.defined());
  const Tensor x = tensor::concatenate({of_all(cls_token), as_tokens(map)}, 1) + where;
  if (!registers.defined()) return x;
  return tensor::concatenate({x(tensor::all_of_axis, tensor::slice(0, 1)), of_all(registers),
                              x(tensor::all_of_axis, tensor::slice(1, tensor::none))},
                             1);
}

Tensor Dinov2::encode(const Tensor& pixels, const Observer& observe) const {
  Tensor x = observed(observe, "hidden_states.0", embed(pixels));
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), layers[i](x));
  return x;
}

nn::StateDict Dinov2::operator()(const Tensor& pixels, const Observer& observe) const {
  const Tensor x = norm(encode(pixels, observe));
  const Tensor cls = x(tensor::all_of_axis, 0);
  if (!classifier.weight.defined()) return {{"last_hidden_state", x}, {"pooler_output", cls}};
  const std::int64_t before = 1 + (registers.defined() ? registers.shape(1) : 0);
  const Tensor mean = tensor::mean(x(tensor::all_of_axis, tensor::slice(before, tensor::none)), 1);
  return {{"logits", classifier(tensor::concatenate({cls, mean}, 1))}};
}

Info describe(const std::string& name, Dinov2& model) {
  const tensor::Shape& kernel = model.patches.weight.shape();
  const std::int64_t h = model.image.height / kernel[2], w = model.image.width / kernel[3];
  const Dinov2Layer& first = model.layers.front();
  InfoRow embeddings{.part = "embeddings"};
  for (const Tensor& x : {model.cls_token, model.position, model.registers})
    if (x.defined()) embeddings.parameters += x.size();
  embeddings.parameters += nn::parameter_count(model.patches);
  embeddings.macs = conv2d_macs(kernel, h, w);
  const std::int64_t tokens =
      1 + h * w + (model.registers.defined() ? model.registers.shape(1) : 0);
  InfoRow layers{.part = "layers", .layers = std::ssize(model.layers)};
  for (Dinov2Layer& each : model.layers) layers.parameters += nn::parameter_count(each);
  layers.macs = layers.layers * transformer_macs(tokens, kernel[0],
                                                 first.in.weight.size() + first.out.weight.size());
  Info info{.model = name,
            .input = shape_text(kernel[1], model.image),
            .rows = {embeddings, layers},
            .peak_activations = transformer_peak(tokens, kernel[0], first.attention.heads,
                                                 first.in.weight.shape(0))};
  add_head(info, model.norm, model.classifier);
  return info;
}

}  // namespace models::dinov2

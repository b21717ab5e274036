// DINOv3's forward pass: pure functions of tensors, so that it can be traced.
#include "models/dinov3/dinov3.h"

#include <cmath>
#include <numbers>

#include "tensor/creation.h"

namespace models::dinov3 {

namespace nn = tensor::nn;
using tensor::Tensor;

Rotation Rotation::of(std::int64_t before, Size grid, std::int64_t features, double theta) {
  const std::int64_t tokens = before + grid.height * grid.width, quarter = features / 4;
  std::vector<float> cosines, sines;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t patch = token - before;
    const auto centre = [](std::int64_t place, std::int64_t extent) {
      return 2 * (static_cast<double>(place) + 0.5) / static_cast<double>(extent) - 1;
    };
    const double at[] = {centre(patch / grid.width, grid.height),
                         centre(patch % grid.width, grid.width)};
    for (std::int64_t i = 0; i < features; ++i) {
      // A quarter for the height, a quarter for the width, and both once more.
      const std::int64_t axis = i / quarter % 2;
      const double period =
          std::pow(theta, static_cast<double>(i % quarter) / static_cast<double>(quarter));
      const double angle = patch < 0 ? 0 : 2 * std::numbers::pi * at[axis] / period;
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const tensor::Shape shape{tokens, features};
  return {tensor::array(cosines).reshape(shape), tensor::array(sines).reshape(shape)};
}

Tensor Rotation::operator()(const Tensor& x) const {
  const std::vector<Tensor> halves = tensor::split(x, 2, -1);
  return x * cosines + tensor::concatenate({-halves[1], halves[0]}, -1) * sines;
}

Dinov3Layer Dinov3Layer::sized(const Dinov3Config& c) {
  const auto square = [&](bool bias) { return nn::Linear::sized(c.width, c.width, bias); };
  return {nn::LayerNorm::sized(c.width, c.eps),
          nn::LayerNorm::sized(c.width, c.eps),
          square(c.query_bias),
          square(c.key_bias),
          square(c.value_bias),
          square(c.output_bias),
          nn::parameter({c.width}),
          nn::parameter({c.width}),
          c.is_gated ? nn::Linear::sized(c.width, c.mlp, c.mlp_bias) : nn::Linear(),
          nn::Linear::sized(c.width, c.mlp, c.mlp_bias),
          nn::Linear::sized(c.mlp, c.width, c.mlp_bias),
          c.heads,
          c.activation};
}

Tensor Dinov3Layer::attend(const Tensor& x, const Rotation& rotation) const {
  const std::int64_t batch = x.shape(0), tokens = x.shape(1), width = x.shape(2);
  const auto of_heads = [&](const Tensor& y) {
    return y.reshape({batch, tokens, heads, width / heads}).swapaxes(1, 2);
  };
  const Tensor q = rotation(of_heads(query(x))), k = rotation(of_heads(key(x)));
  const Tensor y = tensor::scaled_dot_product_attention(q, k, of_heads(value(x)));
  return output(y.swapaxes(1, 2).reshape({batch, tokens, width}));
}

Tensor Dinov3Layer::operator()(const Tensor& x, const Rotation& rotation) const {
  const Tensor y = x + attend(norm1(x), rotation) * scale1, normed = norm2(y);
  const Tensor inner =
      gate.weight.defined() ? activation(gate(normed)) * up(normed) : activation(up(normed));
  return y + down(inner) * scale2;
}

Dinov3 Dinov3::sized(const Dinov3Config& c) {
  Dinov3 net{.cls_token = nn::parameter({1, 1, c.width}),
             .registers = {},
             .patches = nn::Conv2d::sized(c.channels, c.width, c.patch, {.stride = c.patch}),
             .layers = {},
             .norm = nn::LayerNorm::sized(c.width, c.eps),
             .theta = c.theta,
             .image = c.image};
  if (c.registers > 0) net.registers = nn::parameter({1, c.registers, c.width});
  for (std::int64_t i = 0; i < c.layers; ++i) net.layers.push_back(Dinov3Layer::sized(c));
  return net;
}

nn::StateDict Dinov3::operator()(const Tensor& pixels, const Observer& observe) const {
  const tensor::Shape& kernel = patches.weight.shape();
  check_pixels(pixels, kernel[1], {kernel[2], kernel[3]});
  const Tensor map = patches(pixels);
  std::vector<Tensor> tokens;
  for (const Tensor& each : {cls_token, registers})
    if (each.defined())
      tokens.push_back(tensor::broadcast_to(each, {map.shape(0), each.shape(1), each.shape(2)}));
  tokens.push_back(as_tokens(map));
  Tensor x = observed(observe, "hidden_states.0", tensor::concatenate(tokens, 1));
  const std::int64_t features = kernel[0] / layers.front().heads;
  const Rotation rotation = Rotation::of(before(), {map.shape(2), map.shape(3)}, features, theta);
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), layers[i](x, rotation));
  x = norm(x);
  return {{"last_hidden_state", x}, {"pooler_output", x(tensor::all_of_axis, 0)}};
}

Info describe(const std::string& name, Dinov3& model) {
  const tensor::Shape& kernel = model.patches.weight.shape();
  const std::int64_t h = model.image.height / kernel[2], w = model.image.width / kernel[3];
  const Dinov3Layer& first = model.layers.front();
  const std::int64_t inner = first.up.weight.shape(0), gates = first.gate.weight.defined() ? 1 : 0;
  InfoRow embeddings{.part = "embeddings"};
  embeddings.parameters = model.before() * kernel[0] + nn::parameter_count(model.patches);
  embeddings.macs = conv2d_macs(kernel, h, w);
  const std::int64_t tokens = model.before() + h * w;
  InfoRow layers{.part = "layers", .layers = std::ssize(model.layers)};
  for (Dinov3Layer& each : model.layers) layers.parameters += nn::parameter_count(each);
  layers.macs =
      layers.layers * transformer_macs(tokens, kernel[0], (2 + gates) * kernel[0] * inner);
  return {
      .model = name,
      .input = shape_text(kernel[1], model.image),
      .rows = {embeddings, layers, {"norm", 1, nn::parameter_count(model.norm), 0}},
      .peak_activations = transformer_peak(tokens, kernel[0], first.heads, (1 + gates) * inner)};
}

}  // namespace models::dinov3

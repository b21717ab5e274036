// The hybrid encoder's forward pass.
#include "models/rt_detr/hybrid_encoder.h"

#include <algorithm>
#include <cmath>

#include "tensor/creation.h"

namespace models::rt_detr {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

ConvNorm conv_norm(std::int64_t in, std::int64_t out, std::int64_t kernel, const EncoderConfig& c,
                   std::int64_t stride = 1) {
  ConvNorm made = ConvNorm::sized(in, out, kernel, stride);
  made.norm.eps = c.batch_norm_eps;
  return made;
}

detr::EncoderLayer attention_layer(const EncoderConfig& c) {
  const nn::LayerNorm norm = nn::LayerNorm::sized(c.width, c.layer_norm_eps);
  return {nn::MultiheadAttention::sized(c.width, c.heads),
          norm,
          {nn::Linear::sized(c.width, c.ffn), nn::Linear::sized(c.ffn, c.width), c.ffn_activation},
          norm};
}

}  // namespace

Tensor sine_position(Size grid, std::int64_t width, double temperature) {
  const std::int64_t waves = width / 4;
  std::vector<float> numbers;
  const auto add = [&](std::int64_t place, double (*wave)(double)) {
    for (std::int64_t i = 0; i < waves; ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(waves);
      const double angle = static_cast<double>(place) / std::pow(temperature, exponent);
      numbers.push_back(static_cast<float>(wave(angle)));
    }
  };
  for (std::int64_t y = 0; y < grid.height; ++y)
    for (std::int64_t x = 0; x < grid.width; ++x)
      for (const std::int64_t place : {y, x}) add(place, std::sin), add(place, std::cos);
  return tensor::array(numbers, {1, grid.height * grid.width, width});
}

CspLayer CspLayer::sized(const EncoderConfig& c) {
  constexpr int kBlocks = 3;
  const auto inner = static_cast<std::int64_t>(static_cast<double>(c.width) * c.expansion);
  CspLayer layer{.conv1 = conv_norm(2 * c.width, inner, 1, c),
                 .conv2 = conv_norm(2 * c.width, inner, 1, c),
                 .conv3 = inner == c.width ? ConvNorm{} : conv_norm(inner, c.width, 1, c),
                 .bottlenecks = {},
                 .activation = c.activation};
  for (int i = 0; i < kBlocks; ++i)
    layer.bottlenecks.push_back({conv_norm(inner, inner, 3, c), conv_norm(inner, inner, 1, c)});
  return layer;
}

Tensor CspLayer::operator()(const Tensor& x) const {
  Tensor y = activation(conv1(x));
  for (const RepBlock& block : bottlenecks) y = activation(block.conv1(y) + block.conv2(y));
  y = y + activation(conv2(x));
  return conv3.present() ? activation(conv3(y)) : y;
}

HybridEncoder HybridEncoder::sized(const EncoderConfig& c) {
  HybridEncoder net{.attention = {},
                    .attended = c.attended,
                    .lateral = {},
                    .downsample = {},
                    .down = {},
                    .up = {},
                    .temperature = c.temperature,
                    .activation = c.activation};
  for (std::size_t i = 0; i < c.attended.size(); ++i) {
    MapAttention& attention = net.attention.emplace_back();
    for (std::int64_t k = 0; k < c.layers; ++k) attention.layers.push_back(attention_layer(c));
  }
  for (std::size_t i = 1; i < c.maps; ++i) {
    net.lateral.push_back(conv_norm(c.width, c.width, 1, c));
    net.down.push_back(CspLayer::sized(c));
    net.downsample.push_back(conv_norm(c.width, c.width, 3, c, 2));
    net.up.push_back(CspLayer::sized(c));
  }
  return net;
}

std::vector<Tensor> HybridEncoder::operator()(std::vector<Tensor> maps,
                                              const Observer& observe) const {
  for (std::size_t i = 0; i < attended.size(); ++i) {
    Tensor& map = maps[static_cast<std::size_t>(attended[i])];
    const Size grid{map.shape(2), map.shape(3)};
    const Tensor position = sine_position(grid, map.shape(1), temperature);
    Tensor x = as_tokens(map);
    for (const detr::EncoderLayer& layer : attention[i].layers) x = layer(x, position, {});
    map = as_map(x, grid);
  }
  // From the smallest map to the largest one.
  for (std::size_t i = 0; i < lateral.size(); ++i) {
    Tensor &small = maps[maps.size() - 1 - i], &large = maps[maps.size() - 2 - i];
    small = activation(lateral[i](small));
    const Tensor enlarged = tensor::interpolate(small, {large.shape(2), large.shape(3)});
    large = down[i](tensor::concatenate({enlarged, large}, 1));
  }
  for (std::size_t i = 0; i < up.size(); ++i) {
    const Tensor shrunk = activation(downsample[i](maps[i]));
    maps[i + 1] = up[i](tensor::concatenate({shrunk, maps[i + 1]}, 1));
  }
  for (std::size_t i = 0; i < maps.size(); ++i)
    observed(observe, "encoder_maps." + std::to_string(i), maps[i]);
  return maps;
}

}  // namespace models::rt_detr

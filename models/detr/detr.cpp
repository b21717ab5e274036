// DETR's forward pass: pure functions of tensors, so that it can be traced.
#include "models/detr/detr.h"

#include <numbers>

#include "tensor/tensor.h"

namespace models::detr {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

FeedForward sized_ffn(std::int64_t width, std::int64_t inner) {
  return {nn::Linear::sized(width, inner), nn::Linear::sized(inner, width)};
}

/// [B, C, h, w] to tokens [B, h * w, C].
Tensor tokens(const Tensor& map) {
  return map.reshape({map.shape(0), map.shape(1), -1}).swapaxes(1, 2);
}

/// sin and cos of one coordinate [B, h, w] at width / 2 frequencies, interleaved: [B, h, w, width].
Tensor waves(const Tensor& coordinate, std::int64_t width) {
  constexpr double kTemperature = 10000;
  const Tensor exponent = tensor::arange(0, width, 2).astype(tensor::f32) / width;
  const Tensor angle = coordinate.expand_dims(-1) / tensor::power(kTemperature, exponent);
  const tensor::Shape& grid = coordinate.shape();
  return tensor::stack({tensor::sin(angle), tensor::cos(angle)}, -1)
      .reshape({grid[0], grid[1], grid[2], width});
}

constexpr double kEpsilon = 1e-6, kScale = 2 * std::numbers::pi;

/// How far down and how far to the right a cell of a mask is, of at most 2 pi.
Tensor down(const Tensor& mask) {
  const Tensor y = tensor::cumsum(mask, 1);
  return y / (y["::, -1:"] + kEpsilon) * kScale;
}
Tensor across(const Tensor& mask) {
  const Tensor x = tensor::cumsum(mask, 2);
  return x / (x["..., -1:"] + kEpsilon) * kScale;
}

}  // namespace

Tensor sine_position(const Tensor& mask, std::int64_t width) {
  return tensor::concatenate({waves(down(mask), width / 2), waves(across(mask), width / 2)}, -1)
      .reshape({mask.shape(0), -1, width});
}

Tensor sine_position(std::int64_t rows, std::int64_t columns, std::int64_t width) {
  const auto everywhere = [&](const Tensor& line) {
    return tensor::broadcast_to(waves(line, width / 2), {1, rows, columns, width / 2});
  };
  return tensor::concatenate({everywhere(down(tensor::ones({1, rows, 1}))),
                              everywhere(across(tensor::ones({1, 1, columns})))},
                             -1)
      .reshape({1, rows * columns, width});
}

Tensor EncoderLayer::operator()(const Tensor& x, const Tensor& position, const Tensor& keep) const {
  const Tensor placed = x + position;
  const Tensor y = self_attention_norm(x + self_attention(placed, placed, x, keep));
  return ffn_norm(y + ffn(y));
}

Tensor DecoderLayer::operator()(const Tensor& x, const Tensor& queries, const Tensor& memory,
                                const Tensor& position, const Tensor& keep) const {
  const Tensor placed = x + queries;
  const Tensor y = self_attention_norm(x + self_attention(placed, placed, x));
  const Tensor z =
      cross_attention_norm(y + cross_attention(y + queries, memory + position, memory, keep));
  return ffn_norm(z + ffn(z));
}

Detr Detr::sized(const DetrConfig& c) {
  Detr detr{.backbone = ResNet::sized(c.backbone),
            .input_projection = nn::Conv2d::sized(c.backbone.stages.back().out, c.width, 1),
            .queries = nn::Embedding::sized(c.queries, c.width),
            .encoder = {},
            .decoder = {},
            .decoder_norm = nn::LayerNorm::sized(c.width),
            .class_head = nn::Linear::sized(c.width, c.classes + 1),
            .box_head = {nn::Linear::sized(c.width, c.width), nn::Linear::sized(c.width, c.width),
                         nn::Linear::sized(c.width, 4)}};
  const auto norm = [&] { return nn::LayerNorm::sized(c.width); };
  const auto attention = [&](std::int64_t heads) {
    return nn::MultiheadAttention::sized(c.width, heads);
  };
  for (std::int64_t i = 0; i < c.encoder_layers; ++i)
    detr.encoder.push_back(
        {attention(c.encoder_heads), norm(), sized_ffn(c.width, c.encoder_ffn), norm()});
  for (std::int64_t i = 0; i < c.decoder_layers; ++i)
    detr.decoder.push_back({attention(c.decoder_heads), norm(), attention(c.decoder_heads), norm(),
                            sized_ffn(c.width, c.decoder_ffn), norm()});
  return detr;
}

DetrOutput Detr::operator()(const Tensor& pixels, const Tensor& mask,
                            const Observer& observe) const {
  const Tensor features = input_projection(backbone(pixels, observe));
  const std::int64_t batch = features.shape(0), width = features.shape(1);
  const std::int64_t h = features.shape(2), w = features.shape(3);
  Tensor position, keep;
  if (mask.defined()) {
    const Tensor plane = mask.astype(tensor::f32).expand_dims(1);
    const Tensor grid = tensor::squeeze(tensor::interpolate(plane, {h, w}), 1);
    keep = (grid != 0).reshape({batch, 1, 1, h * w});
    position = sine_position(grid, width);
  } else {
    position = sine_position(h, w, width);
  }

  Tensor memory = tokens(features);
  observed(observe, "encoder_hidden_states.0", memory);
  for (std::size_t i = 0; i < encoder.size(); ++i)
    memory = observed(observe, "encoder_hidden_states." + std::to_string(i + 1),
                      encoder[i](memory, position, keep));

  Tensor state = tensor::zeros({batch, queries.weight.shape(0), width});
  observed(observe, "decoder_hidden_states.0", state);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    state = decoder[i](state, queries.weight, memory, position, keep);
    if (i + 1 == decoder.size()) state = decoder_norm(state);
    observed(observe, "decoder_hidden_states." + std::to_string(i + 1), state);
  }

  Tensor box = state;
  for (std::size_t i = 0; i < box_head.size(); ++i)
    box = box_head[i](i == 0 ? box : tensor::relu(box));
  return {.logits = class_head(state),
          .pred_boxes = tensor::sigmoid(box),
          .encoder_last_hidden_state = memory,
          .last_hidden_state = state};
}

}  // namespace models::detr

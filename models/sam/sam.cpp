// The forward pass of SAM's image encoder: pure functions of tensors, so that it can be traced.
#include "models/sam/sam.h"

#include <algorithm>
#include <cmath>

#include "models/common/windows.h"
#include "tensor/creation.h"

namespace models::sam {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

/// [queries, features, keys] of an axis: the row of the table for each distance.
Tensor by_distance(const Tensor& table, std::int64_t extent) {
  const Tensor at = tensor::arange(0, extent, 1);
  const Tensor distances = at.expand_dims(1) - at.expand_dims(0) + (extent - 1);
  return tensor::take(table, distances, 0).swapaxes(1, 2);
}

/// f32 [h, w, h + w]: of every place, a one for its row and a one for its column.
Tensor places(std::int64_t h, std::int64_t w) {
  std::vector<float> ones(static_cast<std::size_t>(h * w * (h + w)));
  for (std::int64_t i = 0; i < h * w; ++i)
    for (const std::int64_t at : {i / w, h + i % w})
      ones[static_cast<std::size_t>(i * (h + w) + at)] = 1;
  return tensor::array(ones, {h, w, h + w});
}

/// A norm of the channels of an image [B, C, h, w].
Tensor of_channels(const nn::LayerNorm& norm, const Tensor& x) {
  return norm(x.transpose({0, 2, 3, 1})).transpose({0, 3, 1, 2});
}

}  // namespace

SamLayer SamLayer::sized(std::int64_t window, const SamConfig& c) {
  const std::int64_t side = window > 0 ? window : c.image / c.patch;
  const auto distances = [&] {
    return c.has_distances ? nn::parameter({2 * side - 1, c.width / c.heads}) : Tensor();
  };
  return {nn::LayerNorm::sized(c.width, c.eps),
          nn::LayerNorm::sized(c.width, c.eps),
          nn::MultiheadAttention::sized(c.width, c.heads, c.qkv_bias),
          distances(),
          distances(),
          nn::Linear::sized(c.width, c.mlp),
          nn::Linear::sized(c.mlp, c.width),
          window,
          c.activation};
}

// What a query adds for a key's row and column is a product, too, of these numbers by the key's
// place: with them beside the features there is no mask, which of a whole image would be large.
Tensor SamLayer::attend(const Tensor& x) const {
  const std::int64_t batch = x.shape(0), h = x.shape(1), w = x.shape(2), width = x.shape(3);
  const std::int64_t heads = attention.heads, features = width / heads;
  if (!row_distances.defined()) {
    const Tensor tokens = x.reshape({batch, h * w, width});
    return attention(tokens, tokens, tokens).reshape(x.shape());
  }
  const auto projected = [&](const nn::Linear& projection) {
    return projection(x).reshape({batch, h, w, heads, features}).transpose({0, 3, 1, 2, 4});
  };
  const Tensor query = projected(attention.query), key = projected(attention.key);
  const Tensor rows = tensor::matmul(query, by_distance(row_distances, h));
  const Tensor columns =
      tensor::matmul(query.swapaxes(2, 3), by_distance(column_distances, w)).swapaxes(2, 3);
  // The scores are divided by the root of all these features, but only the query's should be.
  const auto all = static_cast<double>(features + h + w);
  const Tensor queries =
      tensor::concatenate({query * std::sqrt(all / static_cast<double>(features)),
                           rows * std::sqrt(all), columns * std::sqrt(all)},
                          4);
  const Tensor keys = tensor::concatenate(
      {key, tensor::broadcast_to(places(h, w), {batch, heads, h, w, h + w})}, 4);
  const auto tokens = [&](const Tensor& y) { return y.reshape({batch, heads, h * w, y.shape(4)}); };
  const Tensor seen = tensor::scaled_dot_product_attention(tokens(queries), tokens(keys),
                                                           tokens(projected(attention.value)));
  return attention.output(seen.transpose({0, 2, 1, 3}).reshape({batch, h, w, width}));
}

Tensor SamLayer::operator()(const Tensor& x) const {
  Tensor y = norm1(x);
  if (window > 0) {
    const std::int64_t h = x.shape(1), w = x.shape(2);
    y = padded(y, window, window);
    const Size size{y.shape(1), y.shape(2)};
    y = from_windows(attend(in_windows(y, window)), size);
    if (size.height != h || size.width != w)
      y = y(tensor::all_of_axis, tensor::slice(0, h), tensor::slice(0, w));
  } else {
    y = attend(y);
  }
  y = x + y;
  return y + fc2(activation(fc1(norm2(y))));
}

Sam Sam::sized(const SamConfig& c) {
  const std::int64_t side = c.image / c.patch;
  Sam net{.patches = nn::Conv2d::sized(c.channels, c.width, c.patch, {.stride = c.patch}),
          .position = c.has_position ? nn::parameter({1, side, side, c.width}) : Tensor(),
          .layers = {},
          .conv1 = nn::Conv2d::sized(c.width, c.output, 1, {}, false),
          .conv2 = nn::Conv2d::sized(c.output, c.output, 3, {.padding = 1}, false),
          .norm1 = nn::LayerNorm::sized(c.output, 1e-6),
          .norm2 = nn::LayerNorm::sized(c.output, 1e-6),
          .image = c.image};
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const bool is_whole = std::ranges::find(c.whole, i) != c.whole.end();
    net.layers.push_back(SamLayer::sized(is_whole ? 0 : c.window, c));
  }
  return net;
}

nn::StateDict Sam::operator()(const Tensor& pixels, const Observer& observe) const {
  check_pixels(pixels, patches.weight.shape(1), {1, 1});
  if (pixels.shape(2) != image || pixels.shape(3) != image)
    tensor::fail("pixel_values", "got an image of ", pixels.shape(2), " x ", pixels.shape(3),
                 ", the model takes ", image, " x ", image, ": resize and pad it");
  Tensor x = patches(pixels).transpose({0, 2, 3, 1});
  if (position.defined()) x = x + position;
  observed(observe, "hidden_states.0", x);
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), layers[i](x));
  x = of_channels(norm1, conv1(x.transpose({0, 3, 1, 2})));
  return {{"last_hidden_state", of_channels(norm2, conv2(x))}};
}

Info describe(const std::string& name, Sam& model) {
  const tensor::Shape& kernel = model.patches.weight.shape();
  const std::int64_t side = model.image / kernel[2], cells = side * side, width = kernel[0];
  Info info{.model = name,
            .input = shape_text(kernel[1], {model.image, model.image}),
            .rows = {},
            .peak_activations = 0};
  InfoRow embeddings{.part = "embeddings", .parameters = nn::parameter_count(model.patches)};
  if (model.position.defined()) embeddings.parameters += model.position.size();
  embeddings.macs = conv2d_macs(kernel, side, side);
  info.rows.push_back(embeddings);
  InfoRow layers{.part = "layers", .layers = std::ssize(model.layers)};
  for (SamLayer& layer : model.layers) {
    const std::int64_t seen = layer.window > 0 ? layer.window : side;
    const std::int64_t windows = (side + seen - 1) / seen, n = seen * seen;
    const std::int64_t tokens = windows * windows * n, inner = layer.fc1.weight.shape(0);
    layers.parameters += nn::parameter_count(layer);
    layers.macs += linear_macs(tokens, width, 4 * width) + attention_macs(tokens, n, width) +
                   2 * linear_macs(cells, width, inner);
    // Queries' products by the distances, and keys' places as features of the attention.
    if (layer.row_distances.defined())
      layers.macs += 2 * seen * tokens * width + 2 * seen * tokens * n * layer.attention.heads;
    const std::int64_t attention = 4 * tokens * width + 2 * tokens * n * layer.attention.heads;
    info.peak_activations =
        std::max(info.peak_activations, 2 * cells * width + std::max(attention, 2 * cells * inner));
  }
  info.rows.push_back(layers);
  InfoRow neck{.part = "neck", .layers = 2};
  for (nn::LayerNorm* norm : {&model.norm1, &model.norm2})
    neck.parameters += nn::parameter_count(*norm);
  for (const nn::Conv2d* conv : {&model.conv1, &model.conv2}) add_conv(neck, *conv, {side, side});
  info.rows.push_back(neck);
  return info;
}

}  // namespace models::sam

// Swin's forward pass: pure functions of tensors, so that it can be traced.
#include "models/swin/swin.h"

#include <algorithm>

#include "models/common/windows.h"
#include "tensor/creation.h"

namespace models::swin {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

/// For each pair of pixels of a window, [n * n], the row of the table with their distance.
Tensor distances(std::int64_t window) {
  const std::int64_t n = window * window, side = 2 * window - 1;
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      rows.push_back((i / window - j / window + window - 1) * side + i % window - j % window +
                     window - 1);
  return tensor::array(rows);
}

/// Which of the three parts of a shifted axis a place is in: what the shift brought from the other
/// end is no neighbour of what it came to lie beside.
std::int64_t part(std::int64_t place, std::int64_t extent, std::int64_t window,
                  std::int64_t shift) {
  return (place >= extent - window) + (place >= extent - shift);
}

/// [windows, 1, n, n]: -100 between pixels of shifted windows that were no neighbours.
Tensor shift_mask(std::int64_t h, std::int64_t w, std::int64_t window, std::int64_t shift) {
  const std::int64_t across = w / window, count = h / window * across, n = window * window;
  std::vector<float> mask;
  mask.reserve(static_cast<std::size_t>(count * n * n));
  for (std::int64_t k = 0; k < count; ++k) {
    const auto region = [&](std::int64_t pixel) {
      return 3 * part(k / across * window + pixel / window, h, window, shift) +
             part(k % across * window + pixel % window, w, window, shift);
    };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) mask.push_back(region(i) == region(j) ? 0.f : -100.f);
  }
  return tensor::array(mask).reshape({count, 1, n, n});
}

}  // namespace

SwinBlock SwinBlock::sized(std::int64_t width, std::int64_t heads, bool is_shifted,
                           const SwinConfig& c) {
  const auto inner = static_cast<std::int64_t>(c.mlp_ratio * static_cast<double>(width));
  const std::int64_t side = 2 * c.window - 1;
  return {nn::LayerNorm::sized(width, c.eps),
          nn::LayerNorm::sized(width, c.eps),
          nn::MultiheadAttention::sized(width, heads, c.qkv_bias),
          nn::parameter({side * side, heads}),
          nn::Linear::sized(width, inner),
          nn::Linear::sized(inner, width),
          c.window,
          is_shifted ? c.window / 2 : 0,
          c.activation};
}

Tensor SwinBlock::attend(const Tensor& x, std::int64_t shifted) const {
  const std::int64_t batch = x.shape(0), h = x.shape(1), w = x.shape(2);
  const std::int64_t n = window * window, heads = attention.heads;
  const Tensor windows = in_windows(x, window), tokens = windows.reshape({-1, n, x.shape(3)});
  Tensor bias = tensor::take(bias_table, distances(window), 0)
                    .reshape({n, n, heads})
                    .transpose({2, 0, 1})
                    .expand_dims(0);
  if (shifted > 0) {
    bias = bias + shift_mask(h, w, window, shifted);
    if (batch > 1) bias = tensor::tile(bias, {batch, 1, 1, 1});
  }
  return from_windows(attention(tokens, tokens, tokens, bias).reshape(windows.shape()), {h, w});
}

Tensor SwinBlock::operator()(const Tensor& x) const {
  const std::int64_t h = x.shape(1), w = x.shape(2), least = std::min(h, w);
  if (least < window)
    tensor::fail("pixel_values", "is so small that a stage has only ", h, " x ", w,
                 " pixels, less than a window of ", window, " x ", window);
  // As transformers has it: the pixels of the only window along an axis need no other neighbours.
  const int by = least == window ? 0 : static_cast<int>(shift);
  Tensor y = padded(norm_before(x), window, window);
  if (by > 0) y = tensor::roll(y, {-by, -by}, {1, 2});
  y = attend(y, by);
  if (by > 0) y = tensor::roll(y, {by, by}, {1, 2});
  if (y.shape(1) != h || y.shape(2) != w)
    y = y(tensor::all_of_axis, tensor::slice(0, h), tensor::slice(0, w));
  y = x + y;
  return y + fc2(activation(fc1(norm_after(y))));
}

Tensor SwinMerging::operator()(const Tensor& x) const {
  const Tensor even = padded(x, 2, 2);
  const auto every_second = [&](std::int64_t row, std::int64_t column) -> Tensor {
    return even(tensor::all_of_axis, tensor::slice(row, tensor::none, 2),
                tensor::slice(column, tensor::none, 2));
  };
  return reduction(norm(tensor::concatenate(
      {every_second(0, 0), every_second(1, 0), every_second(0, 1), every_second(1, 1)}, 3)));
}

Tensor SwinStage::operator()(const Tensor& x) const {
  Tensor y = x;
  for (const SwinBlock& block : blocks) y = block(y);
  return downsample.norm.weight.defined() ? downsample(y) : y;
}

Swin Swin::sized(const SwinConfig& c) {
  const tensor::Pair kernel(c.patch.height, c.patch.width);
  Swin net{.patches = nn::Conv2d::sized(c.channels, c.width, kernel, {.stride = kernel}),
           .patch_norm = nn::LayerNorm::sized(c.width),
           .stages = {},
           .norm = {},
           .classifier = {},
           .image = c.image};
  std::int64_t width = c.width;
  for (std::size_t i = 0; i < c.depths.size(); ++i) {
    SwinStage stage;
    for (std::int64_t k = 0; k < c.depths[i]; ++k)
      stage.blocks.push_back(SwinBlock::sized(width, c.heads[i], k % 2 == 1, c));
    if (i + 1 < c.depths.size()) {
      stage.downsample = {nn::LayerNorm::sized(4 * width),
                          nn::Linear::sized(4 * width, 2 * width, false)};
      width *= 2;
    }
    net.stages.push_back(std::move(stage));
  }
  net.norm = nn::LayerNorm::sized(width, c.eps);
  if (c.classes > 0) net.classifier = nn::Linear::sized(width, c.classes);
  return net;
}

nn::StateDict Swin::operator()(const Tensor& pixels, const Observer& observe) const {
  const tensor::Shape& kernel = patches.weight.shape();
  check_pixels(pixels, kernel[1], {1, 1});
  Tensor x = padded(pixels.transpose({0, 2, 3, 1}), kernel[2], kernel[3]);
  x = patch_norm(patches(x.transpose({0, 3, 1, 2})).transpose({0, 2, 3, 1}));
  const auto tokens = [](const Tensor& y) {
    return y.reshape({y.shape(0), y.shape(1) * y.shape(2), y.shape(3)});
  };
  if (observe) observe("hidden_states.0", tokens(x));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    x = stages[i](x);
    if (observe) observe("hidden_states." + std::to_string(i + 1), tokens(x));
  }
  const Tensor normed = tokens(norm(x)), pooled = tensor::mean(normed, 1);
  if (classifier.weight.defined()) return {{"logits", classifier(pooled)}};
  return {{"last_hidden_state", normed}, {"pooler_output", pooled}};
}

Info describe(const std::string& name, Swin& model) {
  const tensor::Shape& kernel = model.patches.weight.shape();
  std::int64_t h = (model.image.height + kernel[2] - 1) / kernel[2];
  std::int64_t w = (model.image.width + kernel[3] - 1) / kernel[3];
  Info info{.model = name,
            .input = shape_text(kernel[1], model.image),
            .rows = {},
            .peak_activations = 0};
  info.rows.push_back({"embeddings", 1,
                       nn::parameter_count(model.patches) + nn::parameter_count(model.patch_norm),
                       conv2d_macs(kernel, h, w)});
  for (std::size_t i = 0; i < model.stages.size(); ++i) {
    SwinStage& stage = model.stages[i];
    const SwinBlock& first = stage.blocks.front();
    const std::int64_t width = first.norm_before.weight.size(), inner = first.fc1.weight.shape(0);
    const std::int64_t pixels = h * w, n = first.window * first.window;
    const std::int64_t block = linear_macs(pixels, width, 4 * width) +
                               attention_macs(pixels, n, width) +
                               2 * linear_macs(pixels, width, inner);
    InfoRow row{.part = "stage " + std::to_string(i + 1), .layers = std::ssize(stage.blocks)};
    row.parameters = nn::parameter_count(stage);
    row.macs = row.layers * block;
    // Alive at once: the image and its norm, and either q, k, v with two copies of the scores, or
    // the MLP's hidden layer before and after the activation.
    const std::int64_t attention = 4 * pixels * width + 2 * pixels * n * first.attention.heads;
    info.peak_activations = std::max(info.peak_activations,
                                     2 * pixels * width + std::max(attention, 2 * pixels * inner));
    if (i + 1 < model.stages.size()) {
      h = (h + 1) / 2, w = (w + 1) / 2;
      row.macs += linear_macs(h * w, 4 * width, 2 * width);
    }
    info.rows.push_back(row);
  }
  add_head(info, model.norm, model.classifier);
  return info;
}

}  // namespace models::swin

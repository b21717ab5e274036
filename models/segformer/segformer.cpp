// SegFormer's forward pass: pure functions of tensors, so that it can be traced.
#include "models/segformer/segformer.h"

#include <algorithm>

namespace models::segformer {

namespace nn = tensor::nn;
using tensor::Tensor;

SegformerLayer SegformerLayer::sized(std::size_t stage, const SegformerConfig& c) {
  const std::int64_t width = c.widths[stage], inner = width * c.mlp_ratios[stage];
  const std::int64_t by = c.reductions[stage];
  SegformerLayer layer{
      .norm_before = nn::LayerNorm::sized(width),
      .norm_after = nn::LayerNorm::sized(width),
      .attention = nn::MultiheadAttention::sized(width, c.heads[stage]),
      .reduction = {},
      .reduction_norm = {},
      .fc1 = nn::Linear::sized(width, inner),
      .fc2 = nn::Linear::sized(inner, width),
      .depthwise = nn::Conv2d::sized(inner, inner, 3, {.padding = 1, .groups = inner}),
      .activation = c.activation};
  if (by > 1) {
    layer.reduction = nn::Conv2d::sized(width, width, by, {.stride = by});
    layer.reduction_norm = nn::LayerNorm::sized(width);
  }
  return layer;
}

Tensor SegformerLayer::operator()(const Tensor& x, Size grid) const {
  const Tensor queries = norm_before(x);
  Tensor keys = queries;
  if (reduction.weight.defined())
    keys = reduction_norm(as_tokens(reduction(as_map(queries, grid))));
  const Tensor y = x + attention(queries, keys, keys);
  const Tensor inner = as_tokens(depthwise(as_map(fc1(norm_after(y)), grid)));
  return y + fc2(activation(inner));
}

Segformer Segformer::sized(const SegformerConfig& c) {
  const std::size_t stages = c.widths.size();
  Segformer net{
      .patches = {},
      .layers = {},
      .norms = {},
      .projections = {},
      .fuse = nn::Conv2d::sized(std::ssize(c.widths) * c.decoder, c.decoder, 1, {}, false),
      .classifier = nn::Conv2d::sized(c.decoder, c.classes, 1),
      .fuse_norm = nn::BatchNorm2d::sized(c.decoder)};
  for (std::size_t i = 0; i < stages; ++i) {
    const std::int64_t in = i == 0 ? c.channels : c.widths[i - 1], kernel = c.patches[i];
    const tensor::Conv2dOptions overlapping{.stride = c.strides[i], .padding = kernel / 2};
    net.patches.push_back({nn::Conv2d::sized(in, c.widths[i], kernel, overlapping),
                           nn::LayerNorm::sized(c.widths[i])});
    net.layers.emplace_back();
    for (std::int64_t k = 0; k < c.depths[i]; ++k)
      net.layers.back().push_back(SegformerLayer::sized(i, c));
    net.norms.push_back(nn::LayerNorm::sized(c.widths[i]));
    net.projections.push_back({nn::Linear::sized(c.widths[i], c.decoder)});
  }
  return net;
}

nn::StateDict Segformer::operator()(const Tensor& pixels, const Observer& observe) const {
  check_pixels(pixels, patches[0].proj.weight.shape(1), {1, 1});
  Tensor x = pixels;
  std::vector<Tensor> maps;
  tensor::Pair finest = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Tensor map = patches[i].proj(x);
    const Size grid{map.shape(2), map.shape(3)};
    if (i == 0) finest = {grid.height, grid.width};
    Tensor tokens = patches[i].norm(as_tokens(map));
    const nn::Conv2d& reduction = layers[i].front().reduction;
    if (reduction.weight.defined() && std::min(grid.height, grid.width) < reduction.weight.shape(2))
      tensor::fail("pixel_values", "is so small that a stage has only ", grid.height, " x ",
                   grid.width, " pixels, which cannot be reduced ", reduction.weight.shape(2),
                   " times");
    for (const SegformerLayer& layer : layers[i]) tokens = layer(tokens, grid);
    tokens = norms[i](tokens);
    x = observed(observe, "hidden_states." + std::to_string(i), as_map(tokens, grid));
    const Tensor wide = as_map(projections[i].linear(tokens), grid);
    maps.push_back(
        i == 0 ? wide
               : tensor::interpolate(wide, finest, {.mode = tensor::Interpolation::bilinear}));
  }
  std::ranges::reverse(maps);
  return {{"logits", classifier(tensor::relu(fuse_norm(fuse(tensor::concatenate(maps, 1)))))}};
}

Info describe(const std::string& name, Segformer& model) {
  Info info{.model = name,
            .input = shape_text(model.patches[0].proj.weight.shape(1), model.image),
            .rows = {},
            .peak_activations = 0};
  std::int64_t h = model.image.height, w = model.image.width, cells = 0, decoding = 0;
  const std::int64_t decoder = model.classifier.weight.shape(1);
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const nn::Conv2d& proj = model.patches[i].proj;
    const std::int64_t stride = proj.options.stride.h, width = proj.weight.shape(0);
    h = (h + stride - 1) / stride, w = (w + stride - 1) / stride;
    if (i == 0) cells = h * w;
    InfoRow row{.part = "stage " + std::to_string(i + 1), .layers = std::ssize(model.layers[i])};
    row.parameters = nn::parameter_count(model.patches[i]) + nn::parameter_count(model.norms[i]);
    row.macs = conv2d_macs(proj.weight.shape(), h, w);
    for (SegformerLayer& layer : model.layers[i]) {
      row.parameters += nn::parameter_count(layer);
      const bool reduces = layer.reduction.weight.defined();
      const std::int64_t by = reduces ? layer.reduction.weight.shape(2) : 1;
      const std::int64_t keys = (h / by) * (w / by), inner = layer.fc1.weight.shape(0);
      row.macs += 2 * linear_macs(h * w + keys, width, width) + attention_macs(h * w, keys, width) +
                  2 * linear_macs(h * w, width, inner) +
                  conv2d_macs(layer.depthwise.weight.shape(), h, w);
      if (reduces) row.macs += conv2d_macs(layer.reduction.weight.shape(), h / by, w / by);
      const std::int64_t attention =
          2 * (h * w + keys) * width + 2 * h * w * keys * layer.attention.heads;
      info.peak_activations = std::max(info.peak_activations,
                                       2 * h * w * width + std::max(attention, 2 * h * w * inner));
    }
    decoding += linear_macs(h * w, width, decoder);
    info.rows.push_back(row);
  }
  InfoRow head{.part = "head"};
  // The running statistics of the norm do not count.
  head.parameters = model.fuse.weight.size() + 2 * decoder + nn::parameter_count(model.classifier);
  for (Projection& each : model.projections) head.parameters += nn::parameter_count(each);
  head.macs = decoding + cells * (model.fuse.weight.size() + model.classifier.weight.size());
  info.rows.push_back(head);
  info.peak_activations =
      std::max(info.peak_activations, 2 * cells * decoder * std::ssize(model.layers));
  return info;
}

}  // namespace models::segformer

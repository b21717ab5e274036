// ViT's forward pass: pure functions of tensors, so that it can be traced.
#include "models/vit/vit.h"

#include <cmath>

#include "models/common/vision_model.h"

namespace models::vit {

namespace nn = tensor::nn;
using tensor::Tensor;

VitLayer VitLayer::sized(const VitConfig& c) {
  return {nn::LayerNorm::sized(c.width, c.eps),
          nn::MultiheadAttention::sized(c.width, c.heads, c.qkv_bias),
          nn::LayerNorm::sized(c.width, c.eps),
          nn::Linear::sized(c.width, c.mlp),
          nn::Linear::sized(c.mlp, c.width),
          c.activation};
}

Tensor VitLayer::operator()(const Tensor& x) const {
  const Tensor normed = norm_before(x);
  const Tensor y = x + attention(normed, normed, normed);
  return y + fc2(activation(fc1(norm_after(y))));
}

Tensor resized_position(const Tensor& position, std::int64_t before, Size grid, bool antialias) {
  const std::int64_t patches = position.shape(1) - before, width = position.shape(2);
  // The references take the trained grid for a square.
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(patches)));
  if (side * side != patches)
    tensor::fail("pixel_values", "the position embedding of ", patches,
                 " patches is not a square grid, so it cannot be resized");
  const Tensor map = position(tensor::all_of_axis, tensor::slice(before, tensor::none))
                         .reshape({1, side, side, width})
                         .transpose({0, 3, 1, 2});
  const Tensor resized =
      tensor::interpolate(map, {grid.height, grid.width},
                          {.mode = tensor::Interpolation::bicubic, .antialias = antialias});
  const Tensor rows = resized.transpose({0, 2, 3, 1}).reshape({1, grid.height * grid.width, width});
  if (before == 0) return rows;
  return tensor::concatenate({position(tensor::all_of_axis, tensor::slice(0, before)), rows}, 1);
}

VitEmbeddings VitEmbeddings::sized(const VitConfig& c) {
  const Size grid = c.grid();
  const tensor::Pair kernel(c.patch.height, c.patch.width);
  return {nn::parameter({1, 1, c.width}), nn::parameter({1, 1 + grid.height * grid.width, c.width}),
          nn::Conv2d::sized(c.channels, c.width, kernel, {.stride = kernel}), c.image,
          c.position_resize};
}

Tensor VitEmbeddings::operator()(const Tensor& pixels) const {
  const tensor::Shape& kernel = patch.weight.shape();
  check_pixels(pixels, kernel[1], {kernel[2], kernel[3]});
  const Size size{pixels.shape(2), pixels.shape(3)};
  const Tensor map = patch(pixels);
  const Tensor tokens = as_tokens(map);
  const Tensor cls = tensor::broadcast_to(cls_token, {map.shape(0), 1, map.shape(1)});
  return tensor::concatenate({cls, tokens}, 1) + position_for(size);
}

Tensor VitEmbeddings::position_for(Size size) const {
  const std::int64_t h = size.height / patch.weight.shape(2);
  const std::int64_t w = size.width / patch.weight.shape(3);
  if (size == image) return position;
  if (position_resize == PositionResize::refuse)
    tensor::fail("pixel_values", "got an image of ", size.height, " x ", size.width,
                 ", the model takes ", image.height, " x ", image.width,
                 ": resize it, or ask for a resized position embedding "
                 "(--interpolate-pos-encoding)");
  if (h * w == position.shape(1) - 1 && h == w) return position;
  return resized_position(position, 1, {h, w}, position_resize == PositionResize::timm);
}

Vit Vit::sized(const VitConfig& c) {
  Vit vit{.embeddings = VitEmbeddings::sized(c),
          .layers = {},
          .norm = nn::LayerNorm::sized(c.width, c.eps),
          .classifier = {},
          .pooler = {}};
  for (std::int64_t i = 0; i < c.layers; ++i) vit.layers.push_back(VitLayer::sized(c));
  if (c.classes > 0) vit.classifier = nn::Linear::sized(c.width, c.classes);
  if (c.pooler > 0) vit.pooler = nn::Linear::sized(c.width, c.pooler);
  return vit;
}

VitOutput Vit::operator()(const Tensor& pixels, const Observer& observe) const {
  Tensor x = observed(observe, "hidden_states.0", embeddings(pixels));
  for (std::size_t i = 0; i < layers.size(); ++i)
    x = observed(observe, "hidden_states." + std::to_string(i + 1), layers[i](x));
  VitOutput out{norm(x), {}, {}};
  const Tensor cls = out.last_hidden_state(tensor::all_of_axis, 0);
  if (classifier.weight.defined()) out.logits = classifier(cls);
  if (pooler.weight.defined()) out.pooler_output = tensor::tanh(pooler(cls));
  return out;
}

}  // namespace models::vit

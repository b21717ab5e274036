// DPT's forward pass: pure functions of tensors, so that it can be traced.
#include "models/dpt/dpt.h"

#include <algorithm>
#include <cmath>

namespace models::dpt {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

Tensor resized(const Tensor& x, tensor::Pair size) {
  return tensor::interpolate(x, size,
                             {.mode = tensor::Interpolation::bilinear, .align_corners = true});
}

tensor::Pair size_of(const Tensor& image) { return {image.shape(2), image.shape(3)}; }

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel, bool with_bias = true) {
  return nn::Conv2d::sized(in, out, kernel, {.padding = kernel / 2}, with_bias);
}

}  // namespace

DptConfig DptConfig::standard(std::string_view model) {
  DptConfig c;
  c.taps = {3, 6, 9, 12};
  if (model == "depth-anything-small") {
    c.backbone.width = 384, c.backbone.heads = 6;
  } else if (model == "depth-anything-base") {
    c.widths = {96, 192, 384, 768}, c.fusion = 128;
  } else if (model == "depth-anything-large") {
    c.taps = {5, 12, 18, 24}, c.widths = {256, 512, 1024, 1024}, c.fusion = 256;
    c.backbone.width = 1024, c.backbone.heads = 16, c.backbone.layers = 24;
  } else {
    tensor::fail("DptConfig", "got the model ", model,
                 ", need depth-anything-small, depth-anything-base or depth-anything-large");
  }
  c.backbone.mlp = 4 * c.backbone.width;
  return c;
}

Reassembling Reassembling::sized(std::int64_t in, std::int64_t out, double factor) {
  Reassembling layer{.projection = conv(in, out, 1), .weight = {}, .bias = {}};
  if (factor == 1) return layer;
  layer.bias = nn::parameter({out});
  if (factor > 1) {
    layer.enlarged = std::llround(factor);
    layer.weight = nn::parameter({out, out, layer.enlarged, layer.enlarged});
  } else {
    layer.shrunk = std::llround(1 / factor);
    layer.weight = nn::parameter({out, out, 3, 3});
  }
  return layer;
}

Tensor Reassembling::operator()(const Tensor& x) const {
  const Tensor y = projection(x);
  if (enlarged > 1) return tensor::conv_transpose2d(y, weight, bias, {.stride = enlarged});
  if (shrunk > 1) return tensor::conv2d(y, weight, bias, {.stride = shrunk, .padding = 1});
  return y;
}

Residual Residual::sized(std::int64_t features) {
  return {conv(features, features, 3), conv(features, features, 3)};
}

Tensor Residual::operator()(const Tensor& x) const {
  return x + convolution2(tensor::relu(convolution1(tensor::relu(x))));
}

Tensor Fusion::operator()(const Tensor& x, const Tensor& image, tensor::Pair size) const {
  return projection(resized(joined(x.defined() ? x + added(image) : image), size));
}

Dpt Dpt::sized(const DptConfig& c) {
  Dpt net{.backbone = dinov2::Dinov2::sized(c.backbone),
          .reassembling = {},
          .convs = {},
          .fusion = {},
          .conv1 = conv(c.fusion, c.fusion / 2, 3),
          .conv2 = conv(c.fusion / 2, c.head, 3),
          .conv3 = conv(c.head, 1, 1),
          .taps = c.taps,
          .is_metric = c.is_metric,
          .largest = c.largest};
  for (std::size_t i = 0; i < c.taps.size(); ++i) {
    net.reassembling.push_back(Reassembling::sized(c.backbone.width, c.widths[i], c.factors[i]));
    net.convs.push_back(conv(c.widths[i], c.fusion, 3, false));
    net.fusion.push_back({conv(c.fusion, c.fusion, 1),
                          i == 0 ? Residual{} : Residual::sized(c.fusion),
                          Residual::sized(c.fusion)});
  }
  return net;
}

std::vector<Tensor> Dpt::tapped(const Tensor& pixels, Size grid, const Observer& observe) const {
  std::vector<Tensor> images;
  std::int64_t state = 0;
  backbone.encode(pixels, [&](const std::string& name, const Tensor& value) {
    observed(observe, name, value);
    if (std::ranges::find(taps, state++) == taps.end()) return;
    const std::size_t i = images.size();
    const Tensor patches =
        backbone.norm(value)(tensor::all_of_axis, tensor::slice(1, tensor::none));
    images.push_back(convs[i](reassembling[i](as_map(patches, grid))));
  });
  return images;
}

nn::StateDict Dpt::operator()(const Tensor& pixels, const Observer& observe) const {
  const tensor::Shape& kernel = backbone.patches.weight.shape();
  check_pixels(pixels, kernel[1], {kernel[2], kernel[3]});
  const Size grid{pixels.shape(2) / kernel[2], pixels.shape(3) / kernel[3]};
  const std::vector<Tensor> images = tapped(pixels, grid, observe);
  Tensor x;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::size_t at = images.size() - 1 - i;
    const tensor::Pair size = size_of(images[at > 0 ? at - 1 : 0]);
    x = fusion[i](x, images[at], at > 0 ? size : tensor::Pair(2 * size.h, 2 * size.w));
  }
  x = resized(conv1(x), {grid.height * kernel[2], grid.width * kernel[3]});
  x = tensor::squeeze(conv3(tensor::relu(conv2(x))), 1);
  return {{"predicted_depth", (is_metric ? tensor::sigmoid(x) : tensor::relu(x)) * largest}};
}

Info describe(const std::string& name, Dpt& model) {
  Info info = dinov2::describe(name, model.backbone);
  const tensor::Shape& kernel = model.backbone.patches.weight.shape();
  const std::int64_t h = model.backbone.image.height / kernel[2];
  const std::int64_t w = model.backbone.image.width / kernel[3];
  InfoRow neck{.part = "neck", .layers = std::ssize(model.taps)};
  neck.parameters = nn::parameter_count(model) - nn::parameter_count(model.backbone);
  std::vector<Size> sizes;
  for (std::size_t i = 0; i < model.taps.size(); ++i) {
    const Reassembling& layer = model.reassembling[i];
    const std::int64_t by = layer.enlarged, less = layer.shrunk;
    const Size size{(h * by + less - 1) / less, (w * by + less - 1) / less};
    sizes.push_back(size);
    neck.macs += conv2d_macs(layer.projection.weight.shape(), h, w) +
                 conv2d_macs(model.convs[i].weight.shape(), size.height, size.width);
    if (by > 1) neck.macs += h * w * layer.weight.size();
    if (less > 1) neck.macs += size.height * size.width * layer.weight.size();
  }
  Size last;
  for (std::size_t i = 0; i < model.taps.size(); ++i) {
    const Fusion& layer = model.fusion[i];
    const std::size_t at = model.taps.size() - 1 - i;
    last = at > 0 ? sizes[at - 1] : Size{2 * sizes[0].height, 2 * sizes[0].width};
    neck.macs += (i == 0 ? 2 : 4) * conv2d_macs(layer.joined.convolution1.weight.shape(),
                                                sizes[at].height, sizes[at].width) +
                 conv2d_macs(layer.projection.weight.shape(), last.height, last.width);
  }
  InfoRow head{.part = "head", .layers = 3};
  for (nn::Conv2d* each : {&model.conv1, &model.conv2, &model.conv3})
    head.parameters += nn::parameter_count(*each);
  neck.parameters -= head.parameters;
  const Size image{h * kernel[2], w * kernel[3]};
  head.macs = conv2d_macs(model.conv1.weight.shape(), last.height, last.width);
  for (const nn::Conv2d* each : {&model.conv2, &model.conv3})
    head.macs += conv2d_macs(each->weight.shape(), image.height, image.width);
  info.rows.push_back(neck);
  info.rows.push_back(head);
  const std::int64_t fused = model.conv1.weight.shape(1), area = image.height * image.width;
  info.peak_activations = std::max({info.peak_activations, 2 * last.height * last.width * fused,
                                    area * (fused / 2 + model.conv2.weight.shape(0))});
  return info;
}

}  // namespace models::dpt

// SETR's forward pass: pure functions of tensors, so that it can be traced.
#include "models/setr/setr.h"

#include <algorithm>
#include <cmath>

namespace models::setr {

namespace nn = tensor::nn;
using tensor::Tensor;

namespace {

Tensor resize(const Tensor& map, tensor::Pair size, bool align_corners = false) {
  return tensor::interpolate(map, size,
                             {.mode = tensor::Interpolation::bilinear,
                              .align_corners = align_corners,
                              .antialias = false});
}

Tensor enlarge(const Tensor& map, std::int64_t factor, bool align_corners = false) {
  return resize(map, {map.shape(2) * factor, map.shape(3) * factor}, align_corners);
}

/// Tokens [B, h * w, C] to a map [B, C, h, w].
Tensor as_map(const Tensor& tokens, tensor::Pair grid) {
  return tokens.swapaxes(1, 2).reshape({tokens.shape(0), tokens.shape(2), grid.h, grid.w});
}

/// The position embedding for another number of cells; the class token's row stays as it is.
Tensor fit_position(const Tensor& position, tensor::Pair grid) {
  const std::int64_t cells = position.shape(1) - 1;
  if (cells == grid.h * grid.w) return position;
  const auto side = std::llround(std::sqrt(static_cast<double>(cells)));
  const Tensor map = as_map(position["::, 1:"], {side, side});
  const Tensor fitted = resize(map, grid).reshape({1, map.shape(1), -1}).swapaxes(1, 2);
  return tensor::concatenate({position["::, :1"], fitted}, 1);
}

/// Zeros at the bottom and the right up to whole patches.
Tensor pad_to_patches(const Tensor& pixels, std::int64_t patch) {
  const std::int64_t h = pixels.shape(2), w = pixels.shape(3);
  const std::int64_t below = (patch - h % patch) % patch, right = (patch - w % patch) % patch;
  if (below == 0 && right == 0) return pixels;
  return tensor::pad(pixels, {{0, 0}, {0, 0}, {0, below}, {0, right}});
}

Tensor naive_or_pup_head(const Setr& net, const Tensor& tokens, tensor::Pair grid) {
  Tensor x = as_map(net.norm(tokens), grid);
  const bool mmseg = net.config.flavour == Flavour::mmseg;
  for (std::size_t i = 0; i < net.upsample.size(); ++i) {
    x = tensor::relu(net.upsample[i](x));
    // fudan classifies before its last enlargement, which is the resize to the image's size.
    const bool last = i + 1 == net.upsample.size();
    if (mmseg || !last) x = enlarge(x, net.config.head == Head::pup ? 2 : 4);
  }
  return net.classifier(x);
}

Tensor mla_head(const Setr& net, const std::vector<Tensor>& taps, tensor::Pair grid) {
  const bool fudan = net.config.flavour == Flavour::fudan;
  std::vector<Tensor> maps(taps.size());
  Tensor sum;
  for (std::size_t i = taps.size(); i-- > 0;) {  // from the deepest up
    const MlaStream& stream = net.streams[i];
    const Tensor lateral = tensor::relu(stream.lateral(as_map(stream.norm(taps[i]), grid)));
    sum = sum.defined() ? sum + lateral : lateral;
    const Tensor narrow = tensor::relu(stream.narrow(tensor::relu(stream.smooth(sum))));
    maps[i] = enlarge(tensor::relu(stream.refine(narrow)), 4, fudan);
  }
  if (!fudan) std::reverse(maps.begin(), maps.end());
  return net.classifier(tensor::concatenate(maps, 1));
}

void check_size(const SetrConfig& config, const Tensor& pixels) {
  const auto is = [&](int axis) { return pixels.shape(axis) == config.image_size; };
  if (config.flavour == Flavour::fudan && !(is(-1) && is(-2)))
    tensor::fail("pixel_values", "got ", pixels.shape(-2), " x ", pixels.shape(-1), ", need ",
                 config.image_size, " x ", config.image_size,
                 ": a fudan SETR takes no other size (slide inference cuts images to it)");
}

}  // namespace

SetrConfig SetrConfig::standard(std::string_view model, std::int64_t image_size) {
  SetrConfig config{.image_size = image_size};
  if (model == "setr-naive-base") {
    config.width = 768, config.heads = 12, config.ffn = 3072, config.layers = 12;
    config.taps = {11};
  } else if (model == "setr-pup") {
    config.head = Head::pup;
    config.decoder_layers = 4;
  } else if (model == "setr-mla") {
    config.head = Head::mla;
    config.taps = {5, 11, 17, 23};
  } else if (model != "setr-naive") {
    tensor::fail("SetrConfig", "got the model ", model,
                 ", need setr-naive-base, setr-naive, setr-pup or setr-mla");
  }
  return config;
}

Setr Setr::sized(const SetrConfig& c) {
  const std::int64_t side = c.image_size / c.patch_size, inner = c.decoder_channels;
  const bool fudan = c.flavour == Flavour::fudan, mla = c.head == Head::mla;
  Setr net{
      .config = c,
      .class_token = nn::parameter({1, 1, c.width}),
      .position = nn::parameter({1, 1 + side * side, c.width}),
      .patches = nn::Conv2d::sized(c.channels, c.width, c.patch_size, {.stride = c.patch_size}),
      .layers = {},
      .final_norm = {},
      .norm = {},
      .upsample = {},
      .streams = {},
      .classifier = {}};
  const vit::VitConfig layer{.width = c.width, .heads = c.heads, .mlp = c.ffn, .eps = c.eps};
  for (std::int64_t i = 0; i < c.layers; ++i) net.layers.push_back(vit::VitLayer::sized(layer));
  if (c.final_norm) net.final_norm = nn::LayerNorm::sized(c.width, c.eps);
  if (mla) {
    for (std::size_t i = 0; i < c.taps.size(); ++i)
      net.streams.push_back({nn::LayerNorm::sized(c.width, c.eps),
                             ConvNorm::sized(c.width, inner, 1), ConvNorm::sized(inner, inner, 3),
                             ConvNorm::sized(inner, c.head_channels, 3),
                             ConvNorm::sized(c.head_channels, c.head_channels, 3)});
    const std::int64_t kernel = fudan ? 3 : 1;
    net.classifier = nn::Conv2d::sized(std::ssize(c.taps) * c.head_channels, c.classes, kernel,
                                       {.padding = kernel / 2});
    return net;
  }
  net.norm = nn::LayerNorm::sized(c.width, c.eps);
  const std::int64_t kernel = c.head == Head::pup ? 3 : 1;
  for (std::int64_t i = 0; i < c.decoder_layers; ++i)
    net.upsample.push_back(ConvNorm::sized(i == 0 ? c.width : inner, inner, kernel, 1, 1, fudan));
  net.classifier = nn::Conv2d::sized(inner, c.classes, 1);
  return net;
}

Tensor Setr::operator()(const Tensor& pixels, const Observer& observe) const {
  check_size(config, pixels);
  const Tensor map = patches(pad_to_patches(pixels, config.patch_size));
  const tensor::Pair grid{map.shape(2), map.shape(3)};
  const std::int64_t batch = map.shape(0), width = map.shape(1);
  const Tensor cells = map.reshape({batch, width, -1}).swapaxes(1, 2);
  const Tensor token = tensor::broadcast_to(class_token, {batch, 1, width});
  const bool mla = config.head == Head::mla;
  Tensor x = tensor::concatenate({token, cells}, 1) + fit_position(position, grid);
  if (!config.has_class_token()) x = x["::, 1:"];

  observed(observe, "hidden_states.0", x);
  std::vector<Tensor> taps;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i](x);
    if (config.final_norm && i + 1 == layers.size()) x = final_norm(x);
    observed(observe, "hidden_states." + std::to_string(i + 1), x);
    if (std::ranges::find(config.taps, static_cast<std::int64_t>(i)) != config.taps.end())
      taps.push_back(config.has_class_token() ? x["::, 1:"] : x);
  }
  const Tensor logits =
      mla ? mla_head(*this, taps, grid) : naive_or_pup_head(*this, taps.back(), grid);
  return resize(logits, {pixels.shape(2), pixels.shape(3)});
}

}  // namespace models::setr

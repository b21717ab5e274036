// Hugging Face's and timm's rules for images.
#include "models/vit/vit_preprocess.h"

#include <cmath>
#include <map>

namespace models::vit {

using tensor::Json;

namespace {

Preprocessing prepared(const SizeRule& size, Filter filter, const ChannelConstants& constants,
                       std::optional<Size> crop = {}) {
  Preprocessing rule;
  rule.size = size;
  rule.filter = filter;
  rule.crop = crop;
  rule.normalization.mean = constants.mean;
  rule.normalization.std = constants.std;
  return rule;
}

SizeRule exact(Size size) { return {SizeRule::Kind::exact, size, 0, 0}; }
SizeRule shortest(std::int64_t edge) { return {SizeRule::Kind::shortest_edge, {}, edge, 0}; }

}  // namespace

std::vector<ProcessorClass> huggingface_processors(Size image) {
  using Fit = ProcessorClass::Fit;
  constexpr Filter kBilinear = Filter::bilinear, kBicubic = Filter::bicubic;
  constexpr Size k224{224, 224};
  const auto same = [](std::string_view name, ProcessorClass rules) {
    rules.name = name;
    return rules;
  };
  const ProcessorClass vit{"ViT", prepared(exact(image), kBilinear, kHalf)};
  const ProcessorClass clip{"CLIP", prepared(shortest(224), kBicubic, kClip, k224), false, k224};
  const ProcessorClass mobile{"MobileNetV1", prepared(shortest(256), kBilinear, kHalf, k224), false,
                              k224};
  return {
      vit,
      {"DeiT", prepared(exact({256, 256}), kBicubic, kHalf, k224), true, k224},
      clip,
      same("ChineseCLIP", clip),
      same("Bit", clip),
      same("ViTHybrid", clip),
      {"Blip", prepared(exact({384, 384}), kBicubic, kClip)},
      {"Siglip", prepared(exact(k224), kBicubic, kHalf), false},
      {"Beit", prepared(exact(k224), kBicubic, kHalf), true, k224},
      {"ConvNext", prepared(shortest(384), kBicubic, kHalf), false, {}, Fit::convnext, 224.0 / 256},
      {"PoolFormer", prepared(shortest(224), kBicubic, kImageNet, k224), false, k224,
       Fit::poolformer, 0.9},
      {"Levit", prepared(shortest(224), kBicubic, kImageNet, k224), false, k224, Fit::levit},
      {"EfficientNet",
       prepared(exact({346, 346}), kBicubic, kHalf),
       true,
       {289, 289},
       Fit::as_it_is,
       1,
       "include_top"},
      {"Pvt", prepared(exact(k224), kBicubic, kImageNet)},
      mobile,
      same("MobileNetV2", mobile)};
}

Preprocessing huggingface_preprocessing(Size image) {
  return huggingface_processors(image).front().defaults;
}

namespace {

Filter timm_filter(const Json& config) {
  static const std::map<std::string, Filter> kFilters = {{"nearest", Filter::nearest},
                                                         {"lanczos", Filter::lanczos},
                                                         {"bilinear", Filter::bilinear},
                                                         {"bicubic", Filter::bicubic}};
  const auto found = kFilters.find(config.text("interpolation", "bicubic"));
  if (found != kFilters.end()) return found->second;
  tensor::fail(config["interpolation"].path(), "got \"", config["interpolation"].text(),
               "\", need nearest, bilinear, bicubic or lanczos");
}

SizeRule timm_size(const Json& config, Size image) {
  const double share = config.number("crop_pct", 0.875);
  if (!(share >= 0.01 && share <= 1))
    tensor::fail(config["crop_pct"].path(), "got ", share, ", need a number from 0.01 to 1");
  const auto scaled = [&](std::int64_t side) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(side) / share));
  };
  SizeRule rule;
  const std::string mode = config.text("crop_mode", "center");
  if (mode == "center" && image.height == image.width) {
    rule.kind = SizeRule::Kind::shortest_edge;
    rule.shortest = scaled(image.height);
  } else if (mode == "squash") {
    rule.size = {scaled(image.height), scaled(image.width)};
  } else {
    tensor::fail(config.path(), "got the crop_mode \"", mode, "\" for an image of ", image.height,
                 " x ", image.width, ", need \"center\" for a square or \"squash\"");
  }
  return rule;
}

}  // namespace

Preprocessing timm_preprocessing(const Json& config, Size image) {
  if (config.has("input_size")) {
    const tensor::Ints sizes = config["input_size"].ints();
    if (sizes.size() != 3 || sizes[1] != image.height || sizes[2] != image.width)
      tensor::fail(config["input_size"].path(), "need [3, ", image.height, ", ", image.width,
                   "], the image that the model takes");
  }
  Preprocessing rule;
  rule.size = timm_size(config, image);
  rule.filter = timm_filter(config);
  rule.order = PassOrder::pillow_13;  // timm resizes with Pillow itself, here the current one
  rule.crop = image;
  rule.crop_rounding = CropRounding::half_to_even;
  // Where the settings say nothing, timm normalises by ImageNet's constants.
  rule.normalization = {
      .rescale = Normalization::Rescale::divide_255, .mean = kImageNet.mean, .std = kImageNet.std};
  if (config.has("mean")) rule.normalization.mean = read_channels(config["mean"]);
  if (config.has("std")) rule.normalization.std = read_deviations(config["std"]);
  return rule;
}

}  // namespace models::vit

// Transformers' image processors as data.
#include "models/common/huggingface.h"

#include <algorithm>

namespace models {

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

std::vector<ProcessorClass> huggingface_processors(Size image, std::string_view first) {
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
  std::vector<ProcessorClass> classes = {
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
      same("MobileNetV2", mobile),
      {"Segformer", prepared(exact({512, 512}), kBilinear, kImageNet)}};
  const auto found = std::ranges::find(classes, first, &ProcessorClass::name);
  std::rotate(classes.begin(), found, found + 1);
  return classes;
}

Preprocessing huggingface_preprocessing(Size image) {
  return huggingface_processors(image).front().defaults;
}

Preprocessing huggingface_preprocessing(const Checkpoint& checkpoint, Size image,
                                        std::string_view first, bool any_size) {
  if (checkpoint.takes == Takes::tensors) return huggingface_preprocessing(image);
  const Json settings = checkpoint.preprocessor ? *checkpoint.preprocessor
                                                : Json::parse("{}", checkpoint.config.path());
  const Preprocessing rule = read_preprocessing(settings, huggingface_processors(image, first));
  if (rule.pad && rule.pad_size)
    tensor::fail(settings["pad_size"].path(), "this model's images are not padded: leave it out");
  require_image(rule, image, settings, any_size);
  return rule;
}

void require_image(const Preprocessing& rule, Size image, const Json& settings, bool any_size) {
  const Size size = preprocessed_size(image, rule);
  if (!any_size && !(size == image))
    tensor::fail(settings.path(), "makes images of ", size.height, " x ", size.width,
                 ", but the model takes ", image.height, " x ", image.width);
}

}  // namespace models

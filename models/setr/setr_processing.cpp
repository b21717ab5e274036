// mmcv's imrescale and the normalisations of its two generations.
#include "models/setr/setr_processing.h"

#include <algorithm>

#include "tensor/tensor.h"

namespace models::setr {

using tensor::Tensor;

Size rescaled_size(Size image, Scale scale) {
  const auto h = static_cast<double>(image.height), w = static_cast<double>(image.width);
  const double factor = std::min(static_cast<double>(scale.longest) / std::max(h, w),
                                 static_cast<double>(scale.shortest) / std::min(h, w));
  const auto scaled = [&](double x) { return static_cast<std::int64_t>(x * factor + 0.5); };
  return {std::max<std::int64_t>(scaled(h), 1), std::max<std::int64_t>(scaled(w), 1)};
}

Scale default_scale(std::int64_t image_size) {
  if (image_size == 768) return {2049, 1025};
  if (image_size == 480) return {520, 520};
  return {4 * image_size, image_size};
}

SetrPreprocessing default_preprocessing(std::int64_t image_size) {
  Normalization levels;
  levels.rescale = Normalization::Rescale::none;
  levels.mean = {123.675f, 116.28f, 103.53f};
  levels.std = {58.395f, 57.12f, 57.375f};
  return {.exact = {}, .scale = default_scale(image_size), .normalization = levels};
}

SetrPreprocessing read_preprocessing(const tensor::Json& config, std::int64_t image_size) {
  SetrPreprocessing rule = default_preprocessing(image_size);
  Preprocessing defaults;
  defaults.size = {SizeRule::Kind::shortest_edge, {}, rule.scale.shortest, rule.scale.longest};
  defaults.normalization = rule.normalization;
  const Preprocessing found =
      models::read_preprocessing(config, {{.name = "Setr", .defaults = defaults, .square = false}});
  if (found.filter != Filter::bilinear)
    tensor::fail(config["resample"].path(), "got ", static_cast<int>(found.filter),
                 ", only 2 (bilinear, as OpenCV computes it) is supported");
  if (found.crop) tensor::fail(config.path(), "asks for a crop, but SETR takes the whole image");
  if (found.pad && found.pad_size)
    tensor::fail(config["pad_size"].path(), "SETR's images are not padded: leave it out");
  rule.resize = found.resize;
  rule.normalization = found.normalization;
  switch (found.size.kind) {
    case SizeRule::Kind::exact:
      rule.exact = found.size.size;
      break;
    case SizeRule::Kind::shortest_edge:
      // No limit on the long side: the short one decides.
      rule.scale = {found.size.longest > 0 ? found.size.longest : std::int64_t{1} << 24,
                    found.size.shortest};
      break;
    case SizeRule::Kind::within:
    case SizeRule::Kind::multiples:     // of DPT's class alone
    case SizeRule::Kind::longest_edge:  // of SAM's
      tensor::fail(config.path(), "size has max_height and max_width, need shortest_edge and ",
                   "longest_edge, or height and width");
  }
  return rule;
}

Size preprocessed_size(Size image, const SetrPreprocessing& rule) {
  if (!rule.resize) return image;
  return rule.exact ? *rule.exact : rescaled_size(image, rule.scale);
}

Tensor fit_levels(const Tensor& image, const SetrPreprocessing& rule) {
  if (!rule.resize) return image;
  const Size given{image.shape(0), image.shape(1)}, size = preprocessed_size(given, rule);
  check_resized(given, size, "give --scale smaller edges");
  return resize_opencv(image, size.height, size.width);
}

namespace {

/// The first generation multiplies by the reciprocal in f64, as OpenCV does.
bool is_opencv(const Normalization& rule, Flavour flavour) {
  const bool levels = rule.rescale == Normalization::Rescale::none;
  return flavour == Flavour::fudan && levels && rule.normalize;
}

}  // namespace

Tensor normalize_levels(const Tensor& levels, const SetrPreprocessing& rule, Flavour flavour) {
  const Normalization& numbers = rule.normalization;
  if (!is_opencv(numbers, flavour)) return models::normalize_levels(levels, numbers);
  const auto channels = [&](const std::array<float, 3>& of_each) {
    return tensor::array(std::span<const float>(of_each), {3, 1, 1}).to(levels.device());
  };
  const Tensor x = levels.transpose({0, 3, 1, 2}).astype(tensor::f32);
  const Tensor centred = (x - channels(numbers.mean)).astype(tensor::f64);
  return (centred * (1 / channels(numbers.std).astype(tensor::f64))).astype(tensor::f32);
}

Tensor normalize_image(const Tensor& levels, const SetrPreprocessing& rule, Flavour flavour) {
  if (is_opencv(rule.normalization, flavour))
    return normalize_levels(levels.expand_dims(0), rule, flavour);
  return normalize(levels, rule.normalization).expand_dims(0);
}

Tensor preprocess(const Tensor& image, const SetrPreprocessing& rule, Flavour flavour) {
  return normalize_image(fit_levels(image, rule), rule, flavour);
}

}  // namespace models::setr

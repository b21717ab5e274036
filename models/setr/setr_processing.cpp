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
  const Preprocessing found = models::read_preprocessing(config, defaults);
  if (found.filter != Filter::bilinear)
    tensor::fail(config["resample"].path(), "got ", static_cast<int>(found.filter),
                 ", only 2 (bilinear, as OpenCV computes it) is supported");
  if (found.crop) tensor::fail(config.path(), "asks for a crop, but SETR takes the whole image");
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
      tensor::fail(config.path(), "size has max_height and max_width, need shortest_edge and ",
                   "longest_edge, or height and width");
  }
  return rule;
}

namespace {

/// The first generation (fudan) multiplies by the reciprocal in f64, as OpenCV does.
Tensor normalize_opencv(const Tensor& image, const Normalization& rule) {
  const tensor::Device device = image.device();
  const Tensor mean = tensor::array(std::span<const float>(rule.mean)).to(device);
  const Tensor std = tensor::array(std::span<const float>(rule.std)).astype(tensor::f64).to(device);
  const Tensor centred = (image.astype(tensor::f32) - mean).astype(tensor::f64);
  return (centred * (1 / std)).astype(tensor::f32).transpose({2, 0, 1}).copy();
}

}  // namespace

Size preprocessed_size(Size image, const SetrPreprocessing& rule) {
  if (!rule.resize) return image;
  return rule.exact ? *rule.exact : rescaled_size(image, rule.scale);
}

Tensor preprocess(const Tensor& image, const SetrPreprocessing& rule, Flavour flavour,
                  const tensor::Device& device) {
  const Size given{image.shape(0), image.shape(1)}, size = preprocessed_size(given, rule);
  if (rule.resize) check_resized(given, size, "give --scale smaller edges");
  const Tensor resized = rule.resize ? resize_opencv(image, size.height, size.width) : image;
  const bool levels = rule.normalization.rescale == Normalization::Rescale::none;
  if (flavour == Flavour::fudan && levels && rule.normalization.normalize)
    return normalize_opencv(resized.to(device), rule.normalization).expand_dims(0);
  if (device.is_cuda())
    return normalize_levels(resized.to(device).expand_dims(0), rule.normalization);
  return normalize(resized, rule.normalization).expand_dims(0);
}

}  // namespace models::setr

// timm's rules for images.
#include "models/vit/vit_preprocess.h"

#include <cmath>
#include <map>

namespace models::vit {

using tensor::Json;

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

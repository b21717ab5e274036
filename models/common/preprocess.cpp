// Preprocessing in the arithmetic of Hugging Face's and torchvision's reference code.
#include "models/common/preprocess.h"

#include <algorithm>
#include <cmath>

#include "tensor/creation.h"
#include "tensor/ops.h"

namespace models {

using tensor::Json;
using tensor::Tensor;

Size SizeRule::of(Size image) const {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  if (kind == Kind::exact) return size;
  if (kind == Kind::within) {
    const double scale = std::min(static_cast<double>(size.height) / height,
                                  static_cast<double>(size.width) / width);
    return {static_cast<std::int64_t>(height * scale), static_cast<std::int64_t>(width * scale)};
  }
  // The order of the operations, the truncation and the unrounded edge are the reference's.
  const double small = std::min(height, width), large = std::max(height, width);
  auto edge = static_cast<double>(shortest);
  double raw = edge;
  if (longest > 0 && large / small * edge > static_cast<double>(longest)) {
    raw = static_cast<double>(longest) * small / large;
    edge = std::nearbyint(raw);
  }
  if (small == edge) return image;
  const auto short_side = static_cast<std::int64_t>(edge);
  const auto long_side = static_cast<std::int64_t>(raw * large / small);
  return width < height ? Size{long_side, short_side} : Size{short_side, long_side};
}

Tensor normalize(const Tensor& image, const Normalization& rule) {
  if (image.dtype() != tensor::u8 || image.rank() != 3 || image.shape(2) != 3)
    tensor::fail("normalize", "got ", image.type(), ", need an image u8(height, width, 3)");
  const std::int64_t pixels = image.shape(0) * image.shape(1);
  const Tensor rows = image.copy();
  const std::uint8_t* levels = rows.data<std::uint8_t>();
  Tensor result = tensor::empty({3, image.shape(0), image.shape(1)});
  float* target = result.mutable_data<float>();
  for (std::size_t channel = 0; channel < 3; ++channel) {
    std::array<float, 256> values;
    for (std::size_t level = 0; level < 256; ++level) {
      auto value = static_cast<float>(level);
      if (rule.rescale == Normalization::Rescale::multiply)
        value = static_cast<float>(static_cast<double>(level) * rule.factor);
      if (rule.rescale == Normalization::Rescale::divide_255) value /= 255.0f;
      values[level] = rule.normalize ? (value - rule.mean[channel]) / rule.std[channel] : value;
    }
    for (std::int64_t i = 0; i < pixels; ++i)
      *target++ = values[levels[i * 3 + static_cast<std::int64_t>(channel)]];
  }
  return result;
}

Tensor normalize_levels(const Tensor& levels, const Normalization& rule) {
  if (levels.dtype() != tensor::u8 || levels.rank() != 4 || levels.shape(3) != 3)
    tensor::fail("normalize", "got ", levels.type(), ", need images u8(batch, height, width, 3)");
  const auto channels = [](const std::array<float, 3>& numbers) {
    return tensor::array(std::span<const float>(numbers), {3, 1, 1});
  };
  Tensor x = levels.transpose({0, 3, 1, 2});
  if (rule.rescale == Normalization::Rescale::multiply)
    x = (x.astype(tensor::f64) * rule.factor).astype(tensor::f32);
  else
    x = x.astype(tensor::f32);
  if (rule.rescale == Normalization::Rescale::divide_255) x = x / 255;
  if (!rule.normalize) return x;
  const tensor::Device device = levels.device();
  return (x - channels(rule.mean).to(device)) / channels(rule.std).to(device);
}

namespace {

// Of images that this library makes; a file may claim anything.
constexpr std::int64_t kLongestEdge = 1 << 16, kMostPixels = 1 << 26;

std::int64_t positive(const Json& value) {
  const std::int64_t number = value.integer();
  if (number < 1 || number > kLongestEdge)
    tensor::fail(value.path(), "got ", number, ", need a whole number from 1 to ", kLongestEdge);
  return number;
}

/// A square's side or {"height": h, "width": w}.
Size read_size(const Json& value) {
  const bool square = value.is_integer();
  const Size size{positive(square ? value : value["height"]),
                  positive(square ? value : value["width"])};
  if (size.height * size.width > kMostPixels)
    tensor::fail(value.path(), "got ", size.height, " x ", size.width, " pixels, need at most ",
                 kMostPixels, " in all");
  return size;
}

/// A number alone is a square, or the shortest edge for models that keep the aspect.
SizeRule read_size_rule(const Json& config, const Json& value, const SizeRule& defaults) {
  using Kind = SizeRule::Kind;
  SizeRule rule;
  const auto has = [&](std::string_view key) { return value.is_object() && value.has(key); };
  if (value.is_integer() && defaults.kind == Kind::shortest_edge) {
    rule.kind = Kind::shortest_edge;
    rule.shortest = positive(value);
    rule.longest = config.has("max_size") ? positive(config["max_size"]) : defaults.longest;
  } else if (value.is_integer() || has("height")) {
    rule.size = read_size(value);
  } else if (has("shortest_edge")) {
    rule.kind = Kind::shortest_edge;
    rule.shortest = positive(value["shortest_edge"]);
    if (value.has("longest_edge")) rule.longest = positive(value["longest_edge"]);
  } else if (has("max_height")) {
    rule.kind = Kind::within;
    rule.size = {positive(value["max_height"]), positive(value["max_width"])};
  } else {
    tensor::fail(value.path(),
                 "need a number, {\"height\", \"width\"}, {\"shortest_edge\"} with or without "
                 "\"longest_edge\", or {\"max_height\", \"max_width\"}");
  }
  return rule;
}

Normalization read_normalization(const Json& config, Normalization rule) {
  const bool rescales = rule.rescale != Normalization::Rescale::none;
  if (!config.boolean("do_rescale", rescales))
    rule.rescale = Normalization::Rescale::none;
  else if (!rescales)
    rule.rescale = Normalization::Rescale::multiply;
  rule.factor = config.number("rescale_factor", rule.factor);
  if (!(rule.factor > 0 && rule.factor <= 1))
    tensor::fail(config["rescale_factor"].path(), "got ", rule.factor,
                 ", need a number above 0 and at most 1");
  rule.normalize = config.boolean("do_normalize", rule.normalize);
  if (config.has("image_mean")) rule.mean = read_channels(config["image_mean"]);
  if (config.has("image_std")) rule.std = read_deviations(config["image_std"]);
  return rule;
}

}  // namespace

std::array<float, 3> read_channels(const Json& value) {
  std::vector<double> numbers =
      value.is_number() ? std::vector<double>(3, value.number()) : value.numbers();
  if (numbers.size() != 3)
    tensor::fail(value.path(), "got ", numbers.size(), " numbers, need 3 (red, green, blue)");
  for (const double number : numbers)
    if (!std::isfinite(static_cast<float>(number)))
      tensor::fail(value.path(), "got ", number, ", need numbers that fit into f32");
  std::array<float, 3> channels;
  std::transform(numbers.begin(), numbers.end(), channels.begin(),
                 [](double x) { return static_cast<float>(x); });
  return channels;
}

std::array<float, 3> read_deviations(const Json& value) {
  const std::array<float, 3> channels = read_channels(value);
  for (const float deviation : channels)
    if (!(deviation > 0)) tensor::fail(value.path(), "got ", deviation, ", need numbers above 0");
  return channels;
}

Preprocessing read_preprocessing(const Json& config, Preprocessing rule) {
  rule.resize = config.boolean("do_resize", rule.resize);
  if (config.has("size")) rule.size = read_size_rule(config, config["size"], rule.size);
  const std::int64_t filter = config.integer("resample", static_cast<std::int64_t>(rule.filter));
  if (filter < 0 || filter > static_cast<std::int64_t>(Filter::hamming))
    tensor::fail(config["resample"].path(), "got ", filter,
                 ", need one of Pillow's filters: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, "
                 "4 box, 5 hamming");
  rule.filter = static_cast<Filter>(filter);
  const bool crops = config.boolean("do_center_crop", rule.crop.has_value());
  if (config.has("crop_size")) rule.crop = read_size(config["crop_size"]);
  if (!crops) rule.crop.reset();
  if (crops && !rule.crop)
    tensor::fail(config["do_center_crop"].path(), "is true, but there is no crop_size");
  rule.normalization = read_normalization(config, rule.normalization);
  rule.pad = config.boolean("do_pad", config.boolean("pad_and_return_pixel_mask", rule.pad));
  if (config.has("pad_size")) rule.pad_size = read_size(config["pad_size"]);
  return rule;
}

Size preprocessed_size(Size image, const Preprocessing& rule) {
  if (rule.crop) return *rule.crop;
  return rule.resize ? rule.size.of(image) : image;
}

void check_resized(Size image, Size resized, std::string_view mending) {
  const auto& [height, width] = resized;
  if (height > 0 && width > 0 && width <= kMostPixels / height) return;
  tensor::fail(kImage, "is ", image.width, " x ", image.height,
               " pixels: resized for the model it would be ", width, " x ", height,
               ", need 1 x 1 up to ", kMostPixels, " in all: ", mending);
}

Tensor fit_levels(const Tensor& image, const Preprocessing& rule) {
  Tensor pixels = image;
  if (rule.resize) {
    const Size given{image.shape(0), image.shape(1)}, size = rule.size.of(given);
    check_resized(given, size);
    pixels = resize_pillow(pixels, size.height, size.width, rule.filter);
  }
  if (rule.crop)
    pixels = center_crop(pixels, rule.crop->height, rule.crop->width, rule.crop_rounding);
  return pixels;
}

Tensor preprocess(const Tensor& image, const Preprocessing& rule) {
  return normalize(fit_levels(image, rule), rule.normalization);
}

}  // namespace models

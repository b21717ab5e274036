// The rules of transformers' image processors for what a file leaves out and how it gives sizes.
#include "models/common/processors.h"

#include <algorithm>
#include <cmath>

#include "models/common/settings.h"
#include "models/common/text.h"

namespace models {

using tensor::Json;

namespace {

constexpr std::int64_t kLongestEdge = 1 << 16;

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"image_processor_type",
               "feature_extractor_type",
               "do_resize",
               "size",
               "default_to_square",
               "max_size",
               "resample",
               "crop_pct",
               "do_center_crop",
               "crop_size",
               "do_rescale",
               "rescale_factor",
               "do_normalize",
               "image_mean",
               "image_std",
               "do_pad",
               "pad_and_return_pixel_mask",
               "pad_size",
               "keep_aspect_ratio",
               "ensure_multiple_of"},
      // Images are read as red, green and blue; labels and annotations are for training.
      .harmless = {"do_convert_rgb", "processor_class", "device", "disable_grouping",
                   "return_tensors", "input_data_format", "format", "do_convert_annotations",
                   "do_reduce_labels", "reduce_labels", "model_input_names", "mask_size",
                   "mask_pad_size"},
      .fixed = {{"data_format", {R"("channels_first")"}},
                {"use_square_size", {"false"}},
                {"rescale_offset", {"false"}},
                {"include_top", {"false"}},
                {"do_flip_channel_order", {"false"}},
                {"do_thumbnail", {"false"}},
                {"do_align_long_axis", {"false"}},
                {"do_crop_margin", {"false"}},
                {"do_grayscale", {"false"}},
                {"do_color_quantize", {"false"}},
                {"apply_ocr", {"false"}},
                {"size_divisor", {"1"}}}};
  return kKnown;
}

std::int64_t positive(const Json& value) {
  const std::int64_t number = value.integer();
  if (number < 1 || number > kLongestEdge)
    tensor::fail(value.path(), "got ", number, ", need a whole number from 1 to ", kLongestEdge);
  return number;
}

/// A square's side, [height, width] or {"height": h, "width": w}.
Size read_size(const Json& value) {
  Size size;
  if (value.is_integer()) {
    size = {positive(value), positive(value)};
  } else if (value.is_array()) {
    if (value.size() != 2)
      tensor::fail(value.path(), "got ", value.size(), " numbers, need [height, width]");
    size = {positive(value[0]), positive(value[1])};
  } else {
    size = {positive(value["height"]), positive(value["width"])};
  }
  if (size.height * size.width > kMostPixels)
    tensor::fail(value.path(), "got ", size.height, " x ", size.width, " pixels, need at most ",
                 kMostPixels, " in all");
  return size;
}

/// A number alone is a square, or the shortest edge for classes that keep the aspect.
SizeRule read_size_rule(const Json& config, const Json& value, const ProcessorClass& rules) {
  using Kind = SizeRule::Kind;
  SizeRule rule;
  const auto has = [&](std::string_view key) { return value.is_object() && value.has(key); };
  if (value.is_integer() && !config.boolean("default_to_square", rules.square)) {
    rule.kind = Kind::shortest_edge;
    rule.shortest = positive(value);
    const std::int64_t longest = rules.defaults.size.longest;
    rule.longest = config.has("max_size") ? positive(config["max_size"]) : longest;
  } else if (value.is_integer() || value.is_array() || has("height")) {
    rule.size = read_size(value);
  } else if (rules.defaults.size.kind == SizeRule::Kind::longest_edge && has("longest_edge")) {
    rule.kind = SizeRule::Kind::longest_edge;
    rule.longest = positive(value["longest_edge"]);
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

/// The class that the file names, by its name of this or an earlier generation.
const ProcessorClass& class_of(const Json& config, const std::vector<ProcessorClass>& classes) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"}) {
    if (!config.has(key)) continue;
    const std::string given = config[key].text();
    std::string_view name = given;
    for (const std::string_view ending : {"Fast", "Pil", "ImageProcessor", "FeatureExtractor"})
      if (name.ends_with(ending)) name.remove_suffix(ending.size());
    const auto found = std::ranges::find(classes, name, &ProcessorClass::name);
    if (found != classes.end()) return *found;
    std::vector<std::string> names;
    for (const ProcessorClass& each : classes)
      names.push_back(std::string(each.name) + "ImageProcessor");
    tensor::fail(config[key].path(), "got ", json_text(given),
                 ", which prepares images in a way that is not computed here: need ",
                 joined(names, ", "));
  }
  return classes.front();
}

/// DPT's two settings, which ask other classes for what they do not do.
void fit_multiples(Preprocessing& rule, const Json& config, const ProcessorClass& rules) {
  using Kind = SizeRule::Kind;
  if (rules.fit != ProcessorClass::Fit::dpt) {
    require_setting(config, {"keep_aspect_ratio", {"false"}});
    require_setting(config, {"ensure_multiple_of", {"1"}});
    return;
  }
  if (rule.size.kind != Kind::exact)
    tensor::fail(config["size"].path(), "need {\"height\", \"width\"} for ", rules.name,
                 "ImageProcessor");
  rule.size.kind = Kind::multiples;
  if (config.has("ensure_multiple_of")) rule.size.multiple = positive(config["ensure_multiple_of"]);
  rule.size.keeps_aspect = config.boolean("keep_aspect_ratio", false);
}

/// What the class makes of the size.
void fit(Preprocessing& rule, const Json& config, const ProcessorClass& rules) {
  using Fit = ProcessorClass::Fit;
  using Kind = SizeRule::Kind;
  if (config.has("crop_pct") && (rules.fit == Fit::as_it_is || rules.fit == Fit::dpt))
    tensor::fail(config["crop_pct"].path(), "is nothing that ", rules.name,
                 "ImageProcessor knows: remove it, or name the class as image_processor_type");
  fit_multiples(rule, config, rules);
  if (rules.fit == Fit::as_it_is || rules.fit == Fit::dpt || !rule.resize) return;
  const double share = config.number("crop_pct", rules.crop_share);
  if (!(share >= 0.01 && share <= 1))
    tensor::fail(config["crop_pct"].path(), "got ", share, ", need a number from 0.01 to 1");
  const bool exact = rule.size.kind == Kind::exact;
  if (exact && rules.fit == Fit::levit) return;
  const auto [height, width] = rule.size.size;
  const bool side = exact && height == width && rules.fit == Fit::poolformer;
  const bool shortest = rule.size.kind == Kind::shortest_edge && rule.size.longest == 0;
  if (!shortest && !side)
    tensor::fail(config["size"].path(), "need {\"shortest_edge\"} for ", rules.name,
                 "ImageProcessor");
  const std::int64_t edge = side ? height : rule.size.shortest;
  const double enlarged = rules.fit == Fit::levit ? 256.0 / 224 * static_cast<double>(edge)
                                                  : static_cast<double>(edge) / share;
  rule.size = {Kind::shortest_edge, {}, static_cast<std::int64_t>(enlarged), 0};
  if (rules.fit != Fit::convnext) return;
  if (rule.crop)
    tensor::fail(config["do_center_crop"].path(), "is true, but ", rules.name,
                 "ImageProcessor crops by crop_pct");
  constexpr std::int64_t kSqueezed = 384;  // from here on the reference does not crop
  if (edge < kSqueezed)
    rule.crop = Size{edge, edge};
  else
    rule.size = {Kind::exact, {edge, edge}, 0, 0};
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

Preprocessing read_preprocessing(const Json& config, const std::vector<ProcessorClass>& classes) {
  const ProcessorClass& rules = class_of(config, classes);
  Preprocessing rule = rules.defaults;
  rule.resize = config.boolean("do_resize", rule.resize);
  if (config.has("size")) rule.size = read_size_rule(config, config["size"], rules);
  const std::int64_t filter = config.integer("resample", static_cast<std::int64_t>(rule.filter));
  if (filter < 0 || filter > static_cast<std::int64_t>(Filter::hamming))
    tensor::fail(config["resample"].path(), "got ", filter,
                 ", need one of Pillow's filters: 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic, "
                 "4 box, 5 hamming");
  rule.filter = static_cast<Filter>(filter);
  // The processors that transformers 5 calls so resize with Pillow itself.
  if (config.text("image_processor_type", "").ends_with("Pil")) rule.order = PassOrder::pillow_13;
  const bool crops = config.boolean("do_center_crop", rule.crop.has_value());
  if (config.has("crop_size"))
    rule.crop = read_size(config["crop_size"]);
  else if (crops && rules.crop.height > 0)
    rule.crop = rules.crop;
  if (!crops) rule.crop.reset();
  if (crops && !rule.crop)
    tensor::fail(config["do_center_crop"].path(), "is true, but there is no crop_size");
  fit(rule, config, rules);
  rule.normalization = read_normalization(config, rule.normalization);
  rule.pad = config.boolean("do_pad", config.boolean("pad_and_return_pixel_mask", rule.pad));
  if (config.has("pad_size")) rule.pad_size = read_size(config["pad_size"]);
  check_settings(config, known_settings());
  if (!rules.refused.empty() && !config.has(rules.refused))
    tensor::fail(config.path(), rules.refused, " is true where ", rules.name,
                 "ImageProcessor's settings do not say false: nothing else is computed");
  return rule;
}

}  // namespace models

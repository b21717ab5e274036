// From a checkpoint folder to SAM's image encoder, with or without what makes masks beside it.
#include <algorithm>
#include <array>

#include "models/common/model_settings.h"
#include "models/common/processors.h"
#include "models/common/settings.h"
#include "models/sam/sam.h"

namespace models::sam {

using tensor::Json;
using tensor::Tensor;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "hidden_size", "output_channels", "num_hidden_layers",
               "num_attention_heads", "num_channels", "image_size", "patch_size", "hidden_act",
               "layer_norm_eps", "qkv_bias", "mlp_ratio", "mlp_dim", "use_abs_pos", "use_rel_pos",
               "window_size", "global_attn_indexes"},
      // Points are for prompts.
      .harmless = {"attention_dropout", "dropout", "initializer_factor", "num_pos_feats", "scale",
                   "projection_dim"},
      .fixed = {}};
  return kKnown;
}

/// What a folder with all of SAM has beside "vision_config".
const KnownSettings& known_of_all() {
  static const KnownSettings kKnown = {.used = {"model_type", "vision_config"},
                                       .harmless = {"prompt_encoder_config", "mask_decoder_config"},
                                       .fixed = {}};
  return kKnown;
}

SamConfig read_config(const Checkpoint& encoder) {
  const Json& json = encoder.config;
  SamConfig c;
  c.width = positive_setting(json, "hidden_size", c.width);
  c.layers = positive_setting(json, "num_hidden_layers", c.layers, kMostLayers);
  c.heads = positive_setting(json, "num_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  const double ratio = ratio_setting(json, "mlp_ratio", 4);
  c.mlp = positive_setting(json, "mlp_dim",
                           static_cast<std::int64_t>(ratio * static_cast<double>(c.width)));
  c.channels = positive_setting(json, "num_channels", c.channels);
  constexpr std::int64_t kMostImage = 1 << 13;
  c.image = positive_setting(json, "image_size", c.image, kMostImage);
  c.patch = positive_setting(json, "patch_size", c.patch);
  if (c.image % c.patch != 0)
    tensor::fail(json.path(), "gives images of ", c.image, " x ", c.image, ", need a multiple of ",
                 "patches of ", c.patch, " x ", c.patch);
  c.output = positive_setting(json, "output_channels", c.output);
  c.window = json.integer("window_size", c.window);
  if (c.window < 0 || c.window > c.image)
    tensor::fail(json["window_size"].path(), "got ", c.window,
                 ", need a whole number of patches, 0 for none, to ", c.image);
  if (json.has("global_attn_indexes")) {
    const tensor::Ints whole = json["global_attn_indexes"].ints();
    c.whole.assign(whole.begin(), whole.end());
  }
  c.eps = encoder.epsilon("layer_norm_eps", c.eps);
  c.qkv_bias = json.boolean("qkv_bias", c.qkv_bias);
  c.has_position = json.boolean("use_abs_pos", c.has_position);
  c.has_distances = json.boolean("use_rel_pos", c.has_distances);
  c.activation = activation_setting(json, "hidden_act");
  check_settings(json, known_settings());
  return c;
}

/// transformers has queries, keys and values as one matrix.
tensor::nn::Source source_of(const std::string& path) {
  constexpr std::array<std::string_view, 3> kFused = {".attn.query.", ".attn.key.", ".attn.value."};
  for (std::size_t i = 0; i < kFused.size(); ++i)
    if (const std::size_t at = path.find(kFused[i]); at != path.npos)
      return {path.substr(0, at) + ".attn.qkv." + path.substr(at + kFused[i].size()),
              static_cast<int>(i), 3};
  constexpr std::string_view kOutput = ".attn.output.";
  std::string name = path;
  if (const std::size_t at = path.find(kOutput); at != path.npos)
    name.replace(at, kOutput.size(), ".attn.proj.");
  return {name};
}

/// What makes masks of prompts.
bool is_unneeded(const std::string& name) {
  return name.starts_with("prompt_encoder.") || name.starts_with("mask_decoder.") ||
         name.starts_with("shared_image_embedding.");
}

/// The long side to 1024 pixels, and zeros, after the normalization, below and at the right.
Preprocessing default_preprocessing(std::int64_t image) {
  Preprocessing rule;
  rule.size = {SizeRule::Kind::longest_edge, {}, 0, image};
  rule.normalization.mean = kImageNet.mean;
  rule.normalization.std = kImageNet.std;
  rule.pad = true;
  rule.pad_size = Size{image, image};
  return rule;
}

Preparation read_preparation(const Checkpoint& checkpoint, std::int64_t image) {
  Preprocessing rule = default_preprocessing(image);
  if (checkpoint.preprocessor) {
    const Json& json = *checkpoint.preprocessor;
    rule = read_preprocessing(json, {{.name = "Sam", .defaults = default_preprocessing(1024)}});
    const bool fits = rule.size.kind == SizeRule::Kind::longest_edge && rule.size.longest <= image;
    if (!rule.resize || !fits || !rule.pad || rule.pad_size != Size{image, image})
      tensor::fail(json.path(), "need a size of {\"longest_edge\"} up to ", image,
                   ", and padding to a pad_size of ", image, " x ", image,
                   ", the image that the model takes");
  }
  Preparation plain = preparation(rule), made = plain;
  const auto pad = [image](const Tensor& pixels) {
    const std::int64_t below = image - pixels.shape(2), right = image - pixels.shape(3);
    return tensor::pad(pixels, {{0, 0}, {0, 0}, {0, below}, {0, right}});
  };
  made.normalize = [=](const Tensor& levels) { return pad(plain.normalize(levels)); };
  made.normalize_levels = [=](const Tensor& levels) { return pad(plain.normalize_levels(levels)); };
  return made;
}

}  // namespace

VisionModel load_sam(const Checkpoint& folder, const LoadSettings&) {
  Checkpoint encoder = folder;
  if (folder.config.text("model_type", "") == "sam") {
    check_settings(folder.config, known_of_all());
    encoder.config = folder.config["vision_config"];
    require_setting(encoder.config, {"model_type", {R"("sam_vision_model")"}});
  }
  const SamConfig config = read_config(encoder);
  Sam net = Sam::sized(config);
  load_named(net, folder, "vision_encoder.", {.rename = source_of, .ignore = is_unneeded});
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = {config.image, config.image};
  model.steps = config.layers + 1;
  model.preparation = read_preparation(folder, config.image);
  return model;
}

}  // namespace models::sam

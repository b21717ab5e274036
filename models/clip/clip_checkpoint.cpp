// From a checkpoint folder to an image tower, with or without the text's beside it.
#include <algorithm>
#include <array>

#include "models/clip/clip.h"
#include "models/common/model_settings.h"
#include "models/common/settings.h"

namespace models::clip {

using tensor::Json;
using tensor::nn::Source;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "hidden_size", "intermediate_size", "projection_dim",
               "num_hidden_layers", "num_attention_heads", "num_channels", "image_size",
               "patch_size", "hidden_act", "layer_norm_eps", "vision_use_head", "id2label",
               "num_labels", "label_names", "problem_type"},
      .harmless = {"attention_dropout", "dropout", "initializer_factor"},
      .fixed = {}};
  return kKnown;
}

/// What a folder with both towers has beside "vision_config".
const KnownSettings& known_of_both() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "vision_config", "vision_config_dict", "projection_dim", "id2label",
               "num_labels", "label_names", "problem_type"},
      .harmless = {"text_config", "text_config_dict", "initializer_factor",
                   "logit_scale_init_value"},
      .fixed = {}};
  return kKnown;
}

/// Old folders tell the tower's settings twice; the second time counts.
void check_dictionary(const Json& config) {
  if (!config.has("vision_config_dict")) return;
  const Json tower = config["vision_config"], again = config["vision_config_dict"];
  for (const char* key : {"num_attention_heads", "image_size", "patch_size", "hidden_size"})
    if (again.has(key) && tower.has(key) && again[key].integer() != tower[key].integer())
      tensor::fail(again[key].path(), "is ", again[key].integer(), ", but ", tower[key].path(),
                   " is ", tower[key].integer(), ": remove one of them");
}

/// The names of transformers but for SigLIP's pooling, which has PyTorch's attention.
Source source_of(const std::string& path) {
  constexpr std::string_view kAttention = "head.attention.";
  if (!path.starts_with(kAttention)) return {path};
  const std::string within = path.substr(kAttention.size());
  const std::size_t dot = within.find('.');
  const std::string part = within.substr(0, dot), leaf = within.substr(dot + 1);
  if (part == "output") return {std::string(kAttention) + "out_proj." + leaf};
  constexpr std::array<std::string_view, 3> kFused = {"query", "key", "value"};
  const auto index = std::ranges::find(kFused, part) - kFused.begin();
  return {std::string(kAttention) + "in_proj_" + leaf, static_cast<int>(index), 3};
}

/// What only the text needs, and what older versions stored of positions.
bool is_unneeded(const std::string& name, const ClipConfig& config) {
  for (const char* part : {"text_model.", "text_projection.", "logit_scale", "logit_bias"})
    if (name.starts_with(part)) return true;
  if (name.ends_with("embeddings.position_ids")) return true;
  // A classifier reads the patches, not what is made of them for a text.
  return config.classes > 0 &&
         (name.starts_with("head.") || name.starts_with("visual_projection."));
}

ClipConfig read_config(const Checkpoint& tower, const Json& whole, bool is_siglip) {
  const Json& json = tower.config;
  ClipConfig c;
  c.is_siglip = is_siglip;
  c.width = positive_setting(json, "hidden_size", c.width);
  c.mlp = positive_setting(json, "intermediate_size", c.mlp);
  c.layers = positive_setting(json, "num_hidden_layers", c.layers, kMostLayers);
  c.heads = positive_setting(json, "num_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.image = size_setting(json, "image_size", c.image);
  c.patch = positive_setting(json, "patch_size", is_siglip ? 16 : 32);
  if (std::min(c.image.height, c.image.width) < c.patch)
    tensor::fail(json["image_size"].path(), "is smaller than a patch of ", c.patch, " x ", c.patch);
  c.eps = tower.epsilon("layer_norm_eps", is_siglip ? 1e-6 : 1e-5);
  if (json.has("hidden_act"))
    c.activation = activation_setting(json, "hidden_act");
  else
    c.activation = is_siglip ? tensor::gelu_tanh : quick_gelu;
  c.has_pooling = json.boolean("vision_use_head", true);
  check_settings(json, known_settings());
  const std::string projection = "visual_projection.weight";
  if (tower.has(projection)) {
    c.projection = tower.at(projection, 2).shape(0);
    tower.agree(whole, "projection_dim", c.projection, "weights of the projection");
  }
  return c;
}

}  // namespace

VisionModel load_clip(const Checkpoint& folder, const LoadSettings& settings) {
  const std::string type = folder.config.text("model_type", "");
  Checkpoint tower = folder;
  if (type == "clip" || type == "siglip") {
    check_settings(folder.config, known_of_both());
    check_dictionary(folder.config);
    tower.config = folder.config["vision_config"];
    require_setting(tower.config,
                    {"model_type", {"\"clip_vision_model\"", "\"siglip_vision_model\""}});
  }
  ClipConfig config = read_config(tower, folder.config, type.starts_with("siglip"));
  config.any_size = settings.any_size;
  config.classes = classes_of(folder);
  if (config.classes > 0) config.projection = 0, config.has_pooling = false;
  ClipTower net = ClipTower::sized(config);
  const auto ignore = [&](const std::string& name) { return is_unneeded(name, config); };
  load_named(net, folder, "vision_model.", {.rename = source_of, .ignore = ignore});
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = config.image;
  model.steps = config.layers + 1;
  read_task(model, folder, config.classes, config.is_siglip ? "Siglip" : "CLIP", settings.any_size);
  return model;
}

}  // namespace models::clip

// From a checkpoint folder to a DINOv2.
#include <algorithm>

#include "models/common/model_settings.h"
#include "models/common/settings.h"
#include "models/dinov2/dinov2.h"

namespace models::dinov2 {

using tensor::Json;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "mlp_ratio",
               "hidden_act", "layer_norm_eps", "image_size", "patch_size", "num_channels",
               "qkv_bias", "use_swiglu_ffn", "num_register_tokens", "id2label", "num_labels",
               "label_names", "problem_type"},
      // The rest is of training, of masked images, and of the model as another one's backbone.
      .harmless = {"hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate",
                   "layerscale_value", "use_mask_token", "out_features", "out_indices",
                   "stage_names", "apply_layernorm", "reshape_hidden_states", "interpolate_offset",
                   "interpolate_antialias"},
      .fixed = {}};
  return kKnown;
}

}  // namespace

Dinov2Config read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  Dinov2Config c;
  c.width = positive_setting(json, "hidden_size", c.width);
  c.layers = positive_setting(json, "num_hidden_layers", c.layers, kMostLayers);
  c.heads = positive_setting(json, "num_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  const auto inner =
      static_cast<std::int64_t>(ratio_setting(json, "mlp_ratio", 4) * static_cast<double>(c.width));
  c.is_gated = json.boolean("use_swiglu_ffn", false);
  // A gated MLP has two thirds of them, rounded up to eights.
  const auto two_thirds = static_cast<std::int64_t>(static_cast<double>(inner) * 2 / 3);
  c.mlp = c.is_gated ? (two_thirds + 7) / 8 * 8 : inner;
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.image = size_setting(json, "image_size", {224, 224});
  c.patch = positive_setting(json, "patch_size", 16);
  if (std::min(c.image.height, c.image.width) < c.patch)
    tensor::fail(json["image_size"].path(), "is smaller than a patch of ", c.patch, " x ", c.patch);
  if (json.text("model_type", "") == "dinov2_with_registers")
    c.registers = positive_setting(json, "num_register_tokens", 4);
  c.qkv_bias = json.boolean("qkv_bias", true);
  c.eps = checkpoint.epsilon("layer_norm_eps", c.eps);
  c.activation = activation_setting(json, "hidden_act");
  c.classes = classes_of(checkpoint);
  check_settings(json, known_settings());
  return c;
}

VisionModel load_dinov2(const Checkpoint& checkpoint, const LoadSettings&) {
  const Dinov2Config config = read_config(checkpoint);
  Dinov2 net = Dinov2::sized(config);
  load_named(net, checkpoint, config.registers > 0 ? "dinov2_with_registers." : "dinov2.",
             {.ignore = [](const std::string& name) { return name == "embeddings.mask_token"; }});
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = config.image;
  model.steps = config.layers + 1;
  read_task(model, checkpoint, config.classes, "Bit", true);
  return model;
}

}  // namespace models::dinov2

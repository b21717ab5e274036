// From a checkpoint folder to a Swin Transformer.
#include "models/common/model_settings.h"
#include "models/common/settings.h"
#include "models/swin/swin.h"

namespace models::swin {

using tensor::Json;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "image_size", "patch_size", "num_channels", "embed_dim", "depths",
               "num_heads", "window_size", "mlp_ratio", "qkv_bias", "hidden_act", "layer_norm_eps",
               "hidden_size", "num_layers", "id2label", "num_labels", "label_names",
               "problem_type"},
      // The path norm was never part of the model.
      .harmless = {"hidden_dropout_prob", "attention_probs_dropout_prob", "drop_path_rate",
                   "encoder_stride", "out_features", "out_indices", "stage_names", "path_norm"},
      .fixed = {{"use_absolute_embeddings", {"false"}}}};
  return kKnown;
}

SwinConfig read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  SwinConfig c;
  c.image = size_setting(json, "image_size", c.image);
  c.patch = size_setting(json, "patch_size", c.patch);
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.width = positive_setting(json, "embed_dim", c.width);
  c.depths = positive_settings(json, "depths", c.depths, 0, kMostLayers);
  c.heads = positive_settings(json, "num_heads", c.heads, c.depths.size());
  constexpr std::int64_t kMostWindow = 64;  // the masks and distances grow with its fourth power
  c.window = positive_setting(json, "window_size", c.window, kMostWindow);
  c.mlp_ratio = ratio_setting(json, "mlp_ratio", c.mlp_ratio);
  c.qkv_bias = json.boolean("qkv_bias", true);
  c.eps = checkpoint.epsilon("layer_norm_eps", c.eps);
  c.activation = activation_setting(json, "hidden_act");
  c.classes = classes_of(checkpoint);
  const auto stages = std::ssize(c.depths);
  for (std::size_t i = 0; i < c.depths.size(); ++i) check_heads(json, c.heads[i], c.width << i);
  checkpoint.agree(json, "num_layers", stages, "depths of the stages");
  checkpoint.agree(json, "hidden_size", c.width << (stages - 1), "widths of the stages");
  check_settings(json, known_settings());
  return c;
}

}  // namespace

VisionModel load_swin(const Checkpoint& checkpoint, const LoadSettings&) {
  const SwinConfig config = read_config(checkpoint);
  Swin net = Swin::sized(config);
  load_named(net, checkpoint, "swin.", {.ignore = [](const std::string& name) {
               // What the window's size gives, and what masked images have.
               return name.ends_with("relative_position_index") || name == "embeddings.mask_token";
             }});
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = config.image;
  model.steps = std::ssize(config.depths) + 1;
  read_task(model, checkpoint, config.classes, "ViT", true);
  return model;
}

}  // namespace models::swin

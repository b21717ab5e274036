// From a checkpoint folder to a DINOv3.
#include <array>

#include "models/common/huggingface.h"
#include "models/common/model_settings.h"
#include "models/common/settings.h"
#include "models/dinov3/dinov3.h"
#include "tensor/creation.h"

namespace models::dinov3 {

using tensor::Json;
using tensor::Tensor;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "hidden_size", "intermediate_size", "num_hidden_layers",
               "num_attention_heads", "num_register_tokens", "num_channels", "image_size",
               "patch_size", "hidden_act", "layer_norm_eps", "rope_theta", "query_bias", "key_bias",
               "value_bias", "proj_bias", "mlp_bias", "use_gated_mlp"},
      // The rest is of training, and of the model as another one's backbone.
      .harmless = {"attention_dropout", "drop_path_rate", "layerscale_value", "pos_embed_shift",
                   "pos_embed_jitter", "pos_embed_rescale", "out_features", "out_indices",
                   "stage_names", "apply_layernorm", "reshape_hidden_states"},
      .fixed = {}};
  return kKnown;
}

Dinov3Config read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  Dinov3Config c;
  c.width = positive_setting(json, "hidden_size", c.width);
  c.mlp = positive_setting(json, "intermediate_size", c.mlp);
  c.layers = positive_setting(json, "num_hidden_layers", c.layers, kMostLayers);
  c.heads = positive_setting(json, "num_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  if (c.width / c.heads % 4 != 0)
    tensor::fail(json.path(), "gives heads of ", c.width / c.heads,
                 " features, need a multiple of 4 to turn them by height and width");
  c.registers = positive_setting(json, "num_register_tokens", c.registers);
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.image = size_setting(json, "image_size", c.image);
  c.patch = positive_setting(json, "patch_size", c.patch);
  c.eps = checkpoint.epsilon("layer_norm_eps", c.eps);
  c.theta = json.number("rope_theta", c.theta);
  if (!(c.theta >= 1 && c.theta <= 1e9))
    tensor::fail(json["rope_theta"].path(), "got ", c.theta, ", need a number from 1 to 1e9");
  c.query_bias = json.boolean("query_bias", c.query_bias);
  c.key_bias = json.boolean("key_bias", c.key_bias);
  c.value_bias = json.boolean("value_bias", c.value_bias);
  c.output_bias = json.boolean("proj_bias", c.output_bias);
  c.mlp_bias = json.boolean("mlp_bias", c.mlp_bias);
  c.is_gated = json.boolean("use_gated_mlp", c.is_gated);
  c.activation = activation_setting(json, "hidden_act");
  check_settings(json, known_settings());
  return c;
}

/// DINOv3ViTImageProcessor resizes numbers rather than levels, which rounds nothing: all of it is
/// the second step, of pictures as they are.
Preparation read_preparation(const Checkpoint& checkpoint) {
  Preprocessing rule;
  rule.size.size = {224, 224};
  rule.normalization.mean = kImageNet.mean;
  rule.normalization.std = kImageNet.std;
  if (checkpoint.preprocessor)
    rule = read_preprocessing(*checkpoint.preprocessor, {{.name = "DINOv3ViT", .defaults = rule}});
  const bool is_exact = rule.size.kind == SizeRule::Kind::exact;
  if (rule.filter != Filter::bilinear || rule.crop || rule.pad || (rule.resize && !is_exact))
    tensor::fail(checkpoint.preprocessor->path(),
                 "need a size of {\"height\", \"width\"} and \"resample\" 2 (bilinear), without a "
                 "crop and padding");
  const auto numbers = [rule](const Tensor& levels) {
    Normalization plain = rule.normalization, colours = rule.normalization;
    plain.normalize = false;
    Tensor x = models::normalize_levels(levels, plain);
    const tensor::Pair size(rule.size.size.height, rule.size.size.width);
    if (rule.resize)
      x = tensor::interpolate(x, size,
                              {.mode = tensor::Interpolation::bilinear, .antialias = true});
    if (!colours.normalize) return x;
    const auto of_channels = [&](const std::array<float, 3>& values) {
      return tensor::array(std::span<const float>(values), {3, 1, 1}).to(levels.device());
    };
    return (x - of_channels(colours.mean)) / of_channels(colours.std);
  };
  return {.size = [](Size picture) { return picture; },
          .fit = [](const Tensor& picture) { return picture; },
          .normalize = [numbers](const Tensor& levels) { return numbers(levels.expand_dims(0)); },
          .normalize_levels = numbers};
}

}  // namespace

VisionModel load_dinov3(const Checkpoint& checkpoint, const LoadSettings&) {
  const Dinov3Config config = read_config(checkpoint);
  Dinov3 net = Dinov3::sized(config);
  load_named(net, checkpoint, "dinov3_vit.", {.ignore = [](const std::string& name) {
               return name == "embeddings.mask_token";  // of masked images
             }});
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = config.image;
  model.steps = config.layers + 1;
  model.preparation = read_preparation(checkpoint);
  return model;
}

}  // namespace models::dinov3

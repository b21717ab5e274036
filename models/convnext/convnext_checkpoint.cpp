// From a checkpoint folder to a ConvNeXt.
#include "models/common/model_settings.h"
#include "models/common/settings.h"
#include "models/convnext/convnext.h"

namespace models::convnext {

using tensor::Json;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "num_channels", "patch_size", "num_stages", "hidden_sizes", "depths",
               "hidden_act", "layer_norm_eps", "layer_scale_init_value", "image_size", "id2label",
               "num_labels", "label_names", "problem_type"},
      .harmless = {"drop_path_rate", "out_features", "out_indices", "stage_names"},
      .fixed = {}};
  return kKnown;
}

ConvNextConfig read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  ConvNextConfig c;
  c.is_v2 = json.text("model_type", "") == "convnextv2";
  const std::int64_t stages = positive_setting(json, "num_stages", 4, kMostStages);
  const auto count = static_cast<std::size_t>(stages);
  c.widths = positive_settings(json, "hidden_sizes", c.widths, count);
  c.depths = positive_settings(json, "depths", c.depths, count, kMostLayers);
  c.channels = positive_setting(json, "num_channels", 3);
  c.patch = positive_setting(json, "patch_size", 4);
  c.layer_scale = json.number("layer_scale_init_value", 1e-6) > 0;
  c.eps = checkpoint.epsilon("layer_norm_eps", 1e-12);
  c.activation = activation_setting(json, "hidden_act");
  c.classes = classes_of(checkpoint);
  check_settings(json, known_settings());
  return c;
}

}  // namespace

VisionModel load_convnext(const Checkpoint& checkpoint, const LoadSettings&) {
  const ConvNextConfig config = read_config(checkpoint);
  ConvNext net = ConvNext::sized(config);
  net.image = size_setting(checkpoint.config, "image_size", net.image);
  load_named(net, checkpoint, config.is_v2 ? "convnextv2." : "convnext.");
  const Size image = net.image;
  const auto stages = std::ssize(net.stages);
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = image;
  model.steps = stages + 1;
  read_task(model, checkpoint, config.classes, "ConvNext", true);
  return model;
}

}  // namespace models::convnext

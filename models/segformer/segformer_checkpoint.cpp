// From a checkpoint folder to a SegFormer.
#include "models/common/huggingface.h"
#include "models/common/model_settings.h"
#include "models/common/settings.h"
#include "models/segformer/segformer.h"
#include "models/setr/setr_checkpoint.h"

namespace models::segformer {

using tensor::Json;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "num_channels", "num_encoder_blocks", "depths", "sr_ratios",
               "hidden_sizes", "patch_sizes", "strides", "num_attention_heads", "mlp_ratios",
               "hidden_act", "decoder_hidden_size", "id2label", "num_labels", "label_names",
               "palette"},
      // Its norms have PyTorch's epsilon whatever the settings say, and take images of any size.
      .harmless = {"layer_norm_eps", "image_size", "hidden_dropout_prob",
                   "attention_probs_dropout_prob", "classifier_dropout_prob", "drop_path_rate",
                   "semantic_loss_ignore_index", "downsampling_rates"},
      .fixed = {{"reshape_last_stage", {"true"}}}};
  return kKnown;
}

SegformerConfig read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  SegformerConfig c;
  const auto stages =
      static_cast<std::size_t>(positive_setting(json, "num_encoder_blocks", 4, kMostStages));
  const auto read = [&](std::string_view key, std::vector<std::int64_t>& numbers,
                        std::int64_t most) {
    numbers = positive_settings(json, key, numbers, stages, most);
  };
  constexpr std::int64_t kMostPatch = 1 << 10;
  read("hidden_sizes", c.widths, kMostFeatures);
  read("depths", c.depths, kMostLayers);
  read("num_attention_heads", c.heads, kMostFeatures);
  read("sr_ratios", c.reductions, kMostPatch);
  read("patch_sizes", c.patches, kMostPatch);
  read("strides", c.strides, kMostPatch);
  read("mlp_ratios", c.mlp_ratios, kMostPatch);
  for (std::size_t i = 0; i < stages; ++i) {
    check_heads(json, c.heads[i], c.widths[i]);
    if (c.patches[i] % 2 == 0)
      tensor::fail(json["patch_sizes"].path(), "has the even number ", c.patches[i],
                   ", need odd ones: the map of classes would not fit the image");
  }
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.decoder = positive_setting(json, "decoder_hidden_size", 256);
  c.classes = checkpoint.at("decode_head.classifier.weight", 4).shape(0);
  checkpoint.agree(json, "num_labels", c.classes, "weights of the classifier");
  c.activation = activation_setting(json, "hidden_act");
  check_settings(json, known_settings());
  return c;
}

}  // namespace

VisionModel load_segformer(const Checkpoint& checkpoint, const LoadSettings& settings) {
  const SegformerConfig config = read_config(checkpoint);
  Segformer net = Segformer::sized(config);
  load_named(net, checkpoint, "segformer.", {.ignore = [](const std::string& name) {
               return name.ends_with("num_batches_tracked");
             }});
  Preprocessing rule = huggingface_preprocessing(checkpoint, net.image, "Segformer", true);
  if (rule.resize && rule.size.kind == SizeRule::Kind::exact) net.image = rule.size.size;
  if (settings.scale) rule.resize = true, rule.size = *settings.scale;
  const Size image = net.image;
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.channels;
  model.image = image;
  model.steps = std::ssize(config.widths);
  model.preparation = preparation(rule);
  model.labels = setr::read_class_names(checkpoint.config, config.classes);
  model.colors = setr::read_palette(checkpoint.config, config.classes);
  model.stride = config.strides[0];
  return model;
}

}  // namespace models::segformer

// Tables after transformers' DetrConfig, ResNetConfig and TimmBackboneConfig.
#include "models/detr/detr_settings.h"

#include "models/common/text.h"
#include "tensor/error.h"

namespace models::detr {

using tensor::Json;

namespace {

const KnownSettings& detr_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type",
               "d_model",
               "hidden_size",
               "num_channels",
               "num_queries",
               "encoder_layers",
               "num_hidden_layers",
               "encoder_attention_heads",
               "num_attention_heads",
               "encoder_ffn_dim",
               "decoder_layers",
               "decoder_attention_heads",
               "decoder_ffn_dim",
               "activation_function",
               "auxiliary_loss",
               "position_embedding_type",
               "dilation",
               "backbone",
               "backbone_config",
               "backbone_kwargs",
               "id2label",
               "num_labels",
               "label_names"},
      // How it was trained. The last three came with code that DETR's grew from, and do nothing.
      .harmless = {"activation_dropout",
                   "attention_dropout",
                   "dropout",
                   "encoder_layerdrop",
                   "decoder_layerdrop",
                   "init_std",
                   "init_xavier_std",
                   "class_cost",
                   "bbox_cost",
                   "giou_cost",
                   "mask_loss_coefficient",
                   "dice_loss_coefficient",
                   "bbox_loss_coefficient",
                   "giou_loss_coefficient",
                   "eos_coefficient",
                   "use_timm_backbone",
                   "use_pretrained_backbone",
                   "freeze_backbone",
                   "classifier_dropout",
                   "max_position_embeddings",
                   "scale_embedding"},
      .fixed = {}};
  return kKnown;
}

/// Of transformers' ResNet, and of a timm model in its place.
const KnownSettings& backbone_settings() {
  static const KnownSettings kKnown = {
      .used = {"num_channels", "in_chans", "embedding_size", "hidden_sizes", "depths", "layer_type",
               "hidden_act", "downsample_in_bottleneck", "out_features", "out_indices",
               "output_stride", "backbone"},
      .harmless = {"stage_names", "use_pretrained_backbone", "use_timm_backbone",
                   "freeze_batch_norm_2d", "id2label", "num_labels", "problem_type"},
      .fixed = {{"model_type", {R"("resnet")", R"("timm_backbone")"}},
                {"downsample_in_first_stage", {"false"}},
                {"features_only", {"true"}}}};
  return kKnown;
}

/// timm's names of the ResNets that this one is: other letters stand for other stems, poolings and
/// blocks, some of which have no tensors to tell.
void check_backbone_name(const Json& settings) {
  if (!settings.has("backbone")) return;
  const std::string given = settings["backbone"].text();
  std::string_view name = given;
  name = name.substr(0, name.find('.'));  // what follows tells where the weights are from
  for (const std::string_view start : {"tv_", "wide_"})
    if (name.starts_with(start)) name.remove_prefix(start.size());
  constexpr std::string_view kResNet = "resnet";
  const bool plain = name.starts_with(kResNet) &&
                     name.find_first_not_of("0123456789_", kResNet.size()) == name.npos;
  if (!plain)
    tensor::fail(settings["backbone"].path(), "got ", json_text(given),
                 ", need a plain ResNet: resnet18, resnet34, resnet50, resnet101, resnet152");
}

}  // namespace

void require_detr(const Json& config) { require_setting(config, {"model_type", {R"("detr")"}}); }

void check_detr(const Json& config) {
  check_settings(config, detr_settings());
  check_backbone_name(config);
  for (const char* key : {"backbone_config", "backbone_kwargs"}) {
    if (!config.has(key)) continue;
    check_settings(config[key], backbone_settings());
    check_backbone_name(config[key]);
  }
}

}  // namespace models::detr

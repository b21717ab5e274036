// Tables after transformers' ViTConfig and timm's VisionTransformer and PretrainedCfg.
#include "models/vit/vit_settings.h"

#include "tensor/error.h"

namespace models::vit {

using tensor::Json;

namespace {

const KnownSettings& huggingface_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
               "intermediate_size", "hidden_act", "layer_norm_eps", "image_size", "patch_size",
               "num_channels", "qkv_bias", "pooler_output_size", "pooler_act", "id2label",
               "num_labels", "label_names", "problem_type"},
      .harmless = {"hidden_dropout_prob", "attention_probs_dropout_prob", "encoder_stride"},
      .fixed = {{"pruned_heads", {"{}"}}}};
  return kKnown;
}

/// The keys of timm's "pretrained_cfg", which older folders have beside "architecture".
const std::vector<std::string_view>& images_used() {
  static const std::vector<std::string_view> kKeys = {"input_size", "interpolation", "crop_pct",
                                                      "crop_mode",  "mean",          "std"};
  return kKeys;
}

const std::vector<std::string_view>& images_harmless() {
  static const std::vector<std::string_view> kKeys = {"url",
                                                      "file",
                                                      "hf_hub_id",
                                                      "hf_hub_filename",
                                                      "source",
                                                      "architecture",
                                                      "tag",
                                                      "custom_load",
                                                      "test_input_size",
                                                      "min_input_size",
                                                      "fixed_input_size",
                                                      "test_crop_pct",
                                                      "num_classes",
                                                      "label_offset",
                                                      "label_names",
                                                      "label_descriptions",
                                                      "labels",
                                                      "pool_size",
                                                      "test_pool_size",
                                                      "first_conv",
                                                      "classifier",
                                                      "description",
                                                      "origin_url",
                                                      "paper_name",
                                                      "paper_ids"};
  return kKeys;
}

const KnownSettings& timm_settings() {
  static const KnownSettings kKnown = [] {
    KnownSettings known = {
        .used = {"model_type", "architecture", "num_classes", "num_features", "global_pool",
                 "model_args", "pretrained_cfg", "num_heads", "num_attention_heads", "id2label",
                 "num_labels", "label_names", "problem_type"},
        .harmless = images_harmless(),
        .fixed = {{"do_pooling", {"true"}}}};
    known.used.insert(known.used.end(), images_used().begin(), images_used().end());
    return known;
  }();
  return kKnown;
}

const KnownSettings& timm_arguments() {
  static const KnownSettings kKnown = {
      .used = {"img_size", "patch_size", "in_chans", "num_classes", "global_pool", "embed_dim",
               "depth", "num_heads", "num_attention_heads", "mlp_ratio", "qkv_bias", "act_layer"},
      .harmless = {"dynamic_img_size", "strict_img_size", "drop_rate", "pos_drop_rate",
                   "patch_drop_rate", "proj_drop_rate", "attn_drop_rate", "drop_path_rate",
                   "weight_init", "fix_init"},
      .fixed = {{"class_token", {"true"}},
                {"no_embed_class", {"false"}},
                {"reg_tokens", {"0"}},
                {"pre_norm", {"false"}},
                {"final_norm", {"true"}},
                {"fc_norm", {"false"}},
                {"qk_norm", {"false"}},
                {"scale_attn_norm", {"false"}},
                {"scale_mlp_norm", {"false"}},
                {"proj_bias", {"true"}},
                {"pos_embed", {R"("learn")"}},
                {"pool_include_prefix", {"false"}},
                {"dynamic_img_pad", {"false"}},
                {"norm_layer", {R"("layernorm")"}},
                {"mlp_layer", {R"("mlp")"}}}};
  return kKnown;
}

/// Whether this is all numbers, "16_224", but for words that say how a model was trained. Others
/// stand for other architectures: "clip", "gap", "reg4".
bool is_plain(std::string_view sizes) {
  sizes = sizes.substr(0, sizes.find('.'));  // what follows tells where the weights are from
  for (const std::string_view training : {"_in21k", "_miil", "_sam", "_dino"})
    if (sizes.ends_with(training)) sizes.remove_suffix(training.size());
  return sizes.find_first_not_of("0123456789_") == sizes.npos;
}

}  // namespace

void require_vit(const Json& config) {
  // Masked Siamese networks are ViTs that were trained in another way.
  require_setting(config, {"model_type", {R"("vit")", R"("vit_msn")", R"("timm_wrapper")"}});
}

void check_huggingface(const Json& config, std::int64_t features_of_a_head) {
  const std::string features = std::to_string(features_of_a_head);
  require_setting(config, {"head_dim", {features}});
  check_settings(config, huggingface_settings());
}

void check_timm(const Json& config) {
  check_settings(config, timm_settings());
  if (config.has("model_args")) check_settings(config["model_args"], timm_arguments());
  if (config.has("pretrained_cfg"))
    check_settings(config["pretrained_cfg"], {images_used(), images_harmless(), {}});
}

std::int64_t timm_heads(std::string_view architecture, std::int64_t width) {
  struct Row {
    std::string_view size;
    std::int64_t width, heads;
  };
  constexpr Row kRows[] = {{"tiny", 192, 3},      {"small", 384, 6},  {"base", 768, 12},
                           {"large", 1024, 16},   {"huge", 1280, 16}, {"giant", 1408, 16},
                           {"gigantic", 1664, 16}};
  if (architecture == "test_vit") return width == 64 ? 2 : 0;
  for (const Row& row : kRows) {
    for (const std::string_view family : {"vit_", "deit_"}) {
      const std::string start = std::string(family) + std::string(row.size) + "_patch";
      if (row.width == width && architecture.starts_with(start) &&
          is_plain(architecture.substr(start.size())))
        return row.heads;
    }
  }
  return 0;
}

}  // namespace models::vit

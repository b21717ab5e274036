// From a checkpoint folder to an RT-DETR.
#include <algorithm>
#include <array>

#include "models/common/labels.h"
#include "models/common/model_settings.h"
#include "models/common/names.h"
#include "models/common/processors.h"
#include "models/common/settings.h"
#include "models/rt_detr/rt_detr.h"

namespace models::rt_detr {

using tensor::Json;
using tensor::nn::StateDict;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type",
               "backbone_config",
               "layer_norm_eps",
               "batch_norm_eps",
               "encoder_hidden_dim",
               "encoder_in_channels",
               "encoder_layers",
               "encoder_ffn_dim",
               "encoder_attention_heads",
               "encode_proj_layers",
               "positional_encoding_temperature",
               "encoder_activation_function",
               "activation_function",
               "hidden_expansion",
               "d_model",
               "num_queries",
               "decoder_in_channels",
               "decoder_ffn_dim",
               "num_feature_levels",
               "decoder_n_points",
               "decoder_layers",
               "decoder_attention_heads",
               "decoder_activation_function",
               "decoder_n_levels",
               "decoder_offset_scale",
               "id2label",
               "num_labels",
               "label_names"},
      // How it was trained, and by which kernels it ran. Strides follow from the backbone.
      .harmless = {"initializer_bias_prior_prob",
                   "freeze_backbone_batch_norms",
                   "feat_strides",
                   "dropout",
                   "activation_dropout",
                   "attention_dropout",
                   "num_denoising",
                   "label_noise_ratio",
                   "box_noise_scale",
                   "disable_custom_kernels",
                   "with_box_refine",
                   "matcher_alpha",
                   "matcher_gamma",
                   "matcher_class_cost",
                   "matcher_bbox_cost",
                   "matcher_giou_cost",
                   "use_focal_loss",
                   "auxiliary_loss",
                   "focal_loss_alpha",
                   "focal_loss_gamma",
                   "weight_loss_vfl",
                   "weight_loss_bbox",
                   "weight_loss_giou",
                   "eos_coefficient",
                   "use_pretrained_backbone"},
      // With another size for tests, no position is added; anchors may be of one size alone.
      .fixed = {{"eval_size", {"null"}},
                {"anchor_image_size", {"null"}},
                {"normalize_before", {"false"}},
                {"learn_initial_query", {"false"}},
                {"decoder_method", {R"("default")"}},
                {"backbone", {"null"}},
                {"use_timm_backbone", {"false"}}}};
  return kKnown;
}

const KnownSettings& backbone_settings() {
  static const KnownSettings kKnown = {
      .used = {"num_channels", "embedding_size", "hidden_sizes", "depths", "layer_type",
               "out_indices"},
      .harmless = {"out_features", "stage_names", "id2label", "num_labels", "problem_type"},
      .fixed = {{"model_type", {R"("rt_detr_resnet")"}},
                {"layer_type", {R"("basic")", R"("bottleneck")"}},
                {"hidden_act", {R"("relu")"}},
                {"downsample_in_first_stage", {"false"}},
                {"downsample_in_bottleneck", {"false"}}}};
  return kKnown;
}

ResNetVdConfig read_backbone(const Json& json) {
  ResNetVdConfig c;
  check_settings(json, backbone_settings());
  c.channels = positive_setting(json, "num_channels", c.channels);
  c.stem = positive_setting(json, "embedding_size", c.stem);
  c.depths = positive_settings(json, "depths", c.depths, 0, kMostLayers);
  c.widths = positive_settings(json, "hidden_sizes", c.widths, c.depths.size());
  c.is_basic = json.text("layer_type", "bottleneck") == "basic";
  const std::int64_t least = c.is_basic ? 1 : 4;
  if (c.stem < 2 || std::ranges::min(c.widths) < least)
    tensor::fail(json.path(), "needs an embedding_size of 2 and hidden_sizes of ", least,
                 " at least");
  return c;
}

/// The stages that the encoder reads, of which 0 is the first.
std::vector<std::int64_t> read_stages(const Json& backbone, std::size_t count) {
  std::vector<std::int64_t> stages;
  for (const std::int64_t i : backbone["out_indices"].ints()) stages.push_back(i - 1);
  const auto is_gap = [](std::int64_t a, std::int64_t b) { return b != a + 1; };
  if (stages.empty() || stages.front() < 0 || stages.back() >= static_cast<std::int64_t>(count) ||
      std::ranges::adjacent_find(stages, is_gap) != stages.end())
    tensor::fail(backbone["out_indices"].path(), "need numbers from 1 to ", count,
                 ", each one more than the one before it: every map is half of another");
  return stages;
}

Activation activation_or(const Json& json, const char* key, Activation fallback) {
  return json.has(key) ? activation_setting(json, key) : fallback;
}

EncoderConfig read_encoder(const Checkpoint& checkpoint, std::size_t maps) {
  const Json& json = checkpoint.config;
  EncoderConfig c;
  c.maps = maps;
  c.width = positive_setting(json, "encoder_hidden_dim", c.width);
  // A sine and a cosine for each of two coordinates.
  if (c.width % 4 != 0)
    tensor::fail(json["encoder_hidden_dim"].path(), "got ", c.width, ", need a multiple of 4");
  c.layers = json.integer("encoder_layers", c.layers);
  if (c.layers < 0 || c.layers > kMostLayers)
    tensor::fail(json["encoder_layers"].path(), "got ", c.layers,
                 ", need a whole number from 0 to ", kMostLayers);
  c.heads = positive_setting(json, "encoder_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  c.ffn = positive_setting(json, "encoder_ffn_dim", c.ffn);
  if (json.has("encode_proj_layers")) {
    const tensor::Ints attended = json["encode_proj_layers"].ints();
    c.attended.assign(attended.begin(), attended.end());
  }
  const auto is_map = [&](std::int64_t i) { return i >= 0 && i < static_cast<std::int64_t>(maps); };
  if (c.attended.size() > maps || !std::ranges::all_of(c.attended, is_map))
    tensor::fail(json["encode_proj_layers"].path(), "need numbers of the ", maps, " maps, from 0");
  c.expansion = ratio_setting(json, "hidden_expansion", c.expansion);
  if (static_cast<double>(c.width) * c.expansion < 1)
    tensor::fail(json["hidden_expansion"].path(), "leaves no feature");
  c.temperature = json.number("positional_encoding_temperature", c.temperature);
  if (!(c.temperature >= 1 && c.temperature <= 1e9))
    tensor::fail(json["positional_encoding_temperature"].path(), "got ", c.temperature,
                 ", need a number from 1 to 1e9");
  c.batch_norm_eps = checkpoint.epsilon("batch_norm_eps", c.batch_norm_eps);
  c.layer_norm_eps = checkpoint.epsilon("layer_norm_eps", c.layer_norm_eps);
  c.activation = activation_or(json, "activation_function", c.activation);
  c.ffn_activation = activation_or(json, "encoder_activation_function", c.ffn_activation);
  return c;
}

RtDetrConfig read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  const Json backbone = json["backbone_config"];
  RtDetrConfig c;
  c.backbone = read_backbone(backbone);
  c.stages = read_stages(backbone, c.backbone.depths.size());
  const std::size_t maps = c.stages.size();
  c.encoder = read_encoder(checkpoint, maps);
  positive_settings(json, "encoder_in_channels", c.encoder.attended, maps);
  for (const char* key : {"num_feature_levels", "decoder_n_levels"})
    checkpoint.agree(json, key, static_cast<std::int64_t>(maps), "settings of the backbone");
  c.width = positive_setting(json, "d_model", c.width);
  c.heads = positive_setting(json, "decoder_attention_heads", c.heads);
  check_heads(json, c.heads, c.width);
  c.layers = positive_setting(json, "decoder_layers", c.layers, kMostLayers);
  c.ffn = positive_setting(json, "decoder_ffn_dim", c.ffn);
  constexpr std::int64_t kMostPoints = 64;
  c.points = positive_setting(json, "decoder_n_points", c.points, kMostPoints);
  c.queries = positive_setting(json, "num_queries", c.queries);
  c.offset_scale = ratio_setting(json, "decoder_offset_scale", c.offset_scale);
  c.ffn_activation = activation_or(json, "decoder_activation_function", c.ffn_activation);
  c.classes = checkpoint.at("enc_score_head.weight", 2).shape(0);
  checkpoint.agree(json, "num_labels", c.classes, "weights of the classifier");
  check_settings(json, known_settings());
  return c;
}

// ---- Names

/// The hub's spelling of names that other versions of transformers give. Heads were stored twice.
std::string canonical(std::string name) {
  if (name.starts_with("model.")) name.erase(0, 6);
  for (const char* head : {"class_embed.", "bbox_embed."})
    if (name.starts_with(head)) name.insert(0, "decoder.");
  constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"encoder.aifi.", "encoder.encoder."}, {".o_proj.", ".out_proj."}, {".mlp.fc", ".fc"}};
  for (const auto& [alias, hub] : kAliases)
    if (const std::size_t at = name.find(alias); at != std::string::npos)
      name.replace(at, alias.size(), hub);
  return name;
}

Checkpoint canonical(const Checkpoint& given) {
  Checkpoint made = given;
  made.tensors.clear();
  for (const auto& [name, value] : given.tensors) made.tensors.emplace(canonical(name), value);
  return made;
}

/// What the parts of a path are called.
tensor::nn::Source source_of(const std::string& path) {
  using Words = std::vector<std::pair<std::string_view, std::string_view>>;
  static const Words kBackbone = {{"conv", "convolution"}, {"norm", "normalization"}};
  static const Words kInput = {{"conv", "0"}, {"norm", "1"}};
  static const Words kLayers = {{"self_attention", "self_attn"},
                                {"self_attention_norm", "self_attn_layer_norm"},
                                {"cross_attention", "encoder_attn"},
                                {"cross_attention_norm", "encoder_attn_layer_norm"},
                                {"ffn", ""},
                                {"ffn_norm", "final_layer_norm"},
                                {"query", "q_proj"},
                                {"key", "k_proj"},
                                {"value", "v_proj"},
                                {"output", "out_proj"}};
  const std::vector<std::string> parts = split_name(path);
  const bool is_input = parts[0].ends_with("_input_proj");
  const Words& words = parts[0] == "backbone" ? kBackbone : is_input ? kInput : kLayers;
  std::string name;
  for (const std::string& part : parts) {
    const auto word = std::ranges::find(words, part, &Words::value_type::first);
    const std::string_view theirs = word == words.end() ? std::string_view(part) : word->second;
    if (!theirs.empty()) name += (name.empty() ? "" : ".") + std::string(theirs);
  }
  return {name};
}

bool is_unneeded(const std::string& name) {
  // What training needs, what the settings say, and classes that only earlier layers tell.
  return name.ends_with("num_batches_tracked") || name.ends_with("n_points_scale") ||
         name.starts_with("denoising_class_embed.") || name.starts_with("decoder.class_embed.");
}

// ---- Pictures

Preprocessing read_pictures(const Checkpoint& checkpoint) {
  Preprocessing rule;
  rule.size.size = {640, 640};
  rule.normalization.normalize = false;
  rule.normalization.mean = kImageNet.mean;
  rule.normalization.std = kImageNet.std;
  if (!checkpoint.preprocessor) return rule;
  const ProcessorClass rules{.name = "RTDetr", .defaults = rule, .square = false};
  rule = read_preprocessing(*checkpoint.preprocessor, {rules});
  if (rule.pad_size)
    tensor::fail((*checkpoint.preprocessor)["pad_size"].path(),
                 "this model's images are not padded: leave it out");
  return rule;
}

}  // namespace

detr::Detector load_rt_detr(const Checkpoint& folder) {
  const Checkpoint checkpoint = canonical(folder);
  const RtDetrConfig config = read_config(checkpoint);
  const auto net = std::make_shared<RtDetr>(RtDetr::sized(config));
  tensor::nn::load(*net, checkpoint.tensors,
                   {.file = checkpoint.folder, .rename = source_of, .ignore = is_unneeded});
  detr::Detector made;
  made.run = [net](const tensor::Tensor& pixels, const tensor::Tensor&, const Observer& observe) {
    return (*net)(pixels, observe);
  };
  made.parameters = [net] { return tensor::nn::parameters(*net); };
  made.info = [net](const std::string& name, Size image) { return describe(*net, name, image); };
  made.channels = config.backbone.channels;
  made.queries = config.queries;
  made.steps = std::ssize(config.backbone.depths) + std::ssize(config.stages) + config.layers;
  made.takes_mask = false;
  made.is_focal = true;
  made.picture = {640, 640};
  made.labels = read_labels(checkpoint.config, config.classes);
  made.preprocessing = read_pictures(checkpoint);
  return made;
}

}  // namespace models::rt_detr

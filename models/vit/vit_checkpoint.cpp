// From the tensors and settings of a checkpoint folder to a ViT.
#include "models/vit/vit_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "models/common/labels.h"
#include "models/common/model_settings.h"
#include "models/vit/vit_preprocess.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace models::vit {

using tensor::Json;
using tensor::Tensor;
using tensor::nn::Source;
using tensor::nn::StateDict;

namespace {

/// Where the parts of a ViT stand in a checkpoint.
struct Names {
  bool timm = false;
  std::string cls_token, position, patch, norm, classifier, pooler;
  std::string layers;                        // "vit.encoder.layer."
  std::map<std::string, std::string> layer;  // within a layer: our name to theirs
  std::string layer_name(const std::string& ours) const { return layers + "0." + layer.at(ours); }
};

Names timm_names() {
  return {.timm = true,
          .cls_token = "cls_token",
          .position = "pos_embed",
          .patch = "patch_embed.proj",
          .norm = "norm",
          .classifier = "head",
          .pooler = "",
          .layers = "blocks.",
          .layer = {{"norm_before", "norm1"},
                    {"attention.query", "attn.qkv"},
                    {"attention.key", "attn.qkv"},
                    {"attention.value", "attn.qkv"},
                    {"attention.output", "attn.proj"},
                    {"norm_after", "norm2"},
                    {"fc1", "mlp.fc1"},
                    {"fc2", "mlp.fc2"}}};
}

/// `newer`: the names of transformers 5 in memory.
Names huggingface_names(const std::string& prefix, const std::string& layers, bool newer) {
  Names names{.cls_token = prefix + "embeddings.cls_token",
              .position = prefix + "embeddings.position_embeddings",
              .patch = prefix + "embeddings.patch_embeddings.projection",
              .norm = prefix + "layernorm",
              .classifier = "classifier",
              .pooler = prefix + "pooler.dense",
              .layers = layers,
              .layer = {{"norm_before", "layernorm_before"}, {"norm_after", "layernorm_after"}}};
  const std::map<std::string, std::string> old_names = {
      {"attention.query", "attention.attention.query"},
      {"attention.key", "attention.attention.key"},
      {"attention.value", "attention.attention.value"},
      {"attention.output", "attention.output.dense"},
      {"fc1", "intermediate.dense"},
      {"fc2", "output.dense"}};
  const std::map<std::string, std::string> new_names = {{"attention.query", "attention.q_proj"},
                                                        {"attention.key", "attention.k_proj"},
                                                        {"attention.value", "attention.v_proj"},
                                                        {"attention.output", "attention.o_proj"},
                                                        {"fc1", "mlp.fc1"},
                                                        {"fc2", "mlp.fc2"}};
  names.layer.insert(newer ? new_names.begin() : old_names.begin(),
                     newer ? new_names.end() : old_names.end());
  return names;
}

/// The flavour of a checkpoint by the names of its tensors.
Names detect(const Checkpoint& checkpoint) {
  static const std::string kEmbeddings = "embeddings.patch_embeddings.projection.weight";
  for (const auto& [name, value] : checkpoint.tensors) {
    if (!name.ends_with(kEmbeddings)) continue;
    const std::string prefix = name.substr(0, name.size() - kEmbeddings.size());
    for (const char* layers : {"encoder.layer.", "encoder.layers.", "layers."}) {
      const std::string start = prefix + layers;
      if (checkpoint.count(start) == 0) continue;
      return huggingface_names(prefix, start, checkpoint.has(start + "0.attention.q_proj.weight"));
    }
    tensor::fail(checkpoint.folder, "has \"", name, "\" but no layers under \"", prefix,
                 "encoder.layer.0.\" or \"", prefix, "layers.0.\"");
  }
  if (checkpoint.has("patch_embed.proj.weight")) return timm_names();
  tensor::fail(checkpoint.folder, "does not hold a ViT: there is neither a tensor \"...",
               kEmbeddings, "\" (Hugging Face) nor \"patch_embed.proj.weight\" (timm)");
}

// ---- timm's variants of the architecture that are not this one

void refuse_other_timm_models(const Checkpoint& checkpoint) {
  static const std::pair<const char*, const char*> kFeatures[] = {
      {".ls1.gamma", "layer scale"},
      {".ls2.gamma", "layer scale"},
      {".q_norm.", "query/key norms"},
      {".attn.norm.", "an attention norm"},
      {".attns.", "parallel attentions"},
      {"norm_pre.", "a norm before"},
      {"reg_token", "register tokens"},
      {"dist_token", "distillation"},
      {"head_dist.", "distillation"},
      {"attn_pool.", "attention pooling"},
      {"fc_norm.", "average pooling (fc_norm)"},
      {".mlp.w12.", "a gated MLP"},
      {".mlp.fc1_g.", "a gated MLP"},
      {".mlp.norm.", "a norm in the MLP"}};
  for (const auto& [name, value] : checkpoint.tensors)
    for (const auto& [part, feature] : kFeatures)
      if (name.find(part) != std::string::npos)
        tensor::fail(checkpoint.folder, "is a timm model with ", feature, " (\"", name,
                     "\"), which is not supported: need a plain ViT");
}

/// The class token alone goes to the head; without a head there is nothing to pool.
void check_pooling(const Json& settings, const VitConfig& c) {
  const std::string pooling = settings.text("global_pool", "token");
  if (pooling != "token" && !(pooling == "" && c.classes == 0))
    tensor::fail(settings["global_pool"].path(), "got \"", pooling,
                 "\", only \"token\" is supported");
}

// ---- Settings

std::int64_t read_timm_heads(const Json& config, const Json& model_args, std::int64_t width) {
  for (const Json& settings : {model_args, config})
    for (const char* key : {"num_heads", "num_attention_heads"})
      if (settings.has(key)) return settings[key].integer();
  const std::string architecture = config.text("architecture", "");
  if (const std::int64_t heads = timm_heads(architecture, width)) return heads;
  tensor::fail(config.path(),
               "does not tell the number of attention heads: neither is there "
               "model_args.num_heads, nor is the architecture \"",
               architecture, "\" one of timm's plain ViTs of width ", width);
}

/// What the shapes of the tensors say.
VitConfig config_from_shapes(const Checkpoint& checkpoint, const Names& names) {
  VitConfig c;
  const tensor::Shape& patch = checkpoint.at(names.patch + ".weight", 4).shape();
  c.width = patch[0];
  c.channels = patch[1];
  c.patch = {patch[2], patch[3]};
  c.layers = checkpoint.count(names.layers);
  c.mlp = checkpoint.at(names.layer_name("fc1") + ".weight", 2).shape(0);
  c.qkv_bias = checkpoint.has(names.layer_name("attention.query") + ".bias");
  const std::string classifier = names.classifier + ".weight";
  c.classes = checkpoint.has(classifier) ? checkpoint.at(classifier, 2).shape(0) : 0;
  const std::string pooler = names.pooler + ".weight";
  if (c.classes == 0 && checkpoint.has(pooler)) c.pooler = checkpoint.at(pooler, 2).shape(0);
  const std::int64_t positions = checkpoint.at(names.position, 3).shape(1);
  if (num_elements(patch) == 0 || c.mlp == 0 || positions == 0)
    tensor::fail(checkpoint.folder, "holds tensors without elements");
  return c;
}

/// The image's size as a setting says, or the square that the position embedding covers.
Size image_size(const Checkpoint& checkpoint, const Names& names, const VitConfig& c,
                const Json& settings, const char* key) {
  const std::int64_t patches = checkpoint.at(names.position, 3).shape(1) - 1;
  const auto side =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(std::max<std::int64_t>(patches, 0))));
  Size image{side * c.patch.height, side * c.patch.width};
  std::string where = checkpoint.folder, what = "";
  if (settings.has(key)) {
    image = size_setting(settings[key]);
    where = settings[key].path();
  }
  const bool sensible = image.height >= c.patch.height && image.width >= c.patch.width &&
                        image.height <= 1 << 20 && image.width <= 1 << 20;
  const Size grid{image.height / c.patch.height, image.width / c.patch.width};
  if (names.timm && sensible && grid.height * grid.width == patches + 1)
    tensor::fail(checkpoint.folder, "\"", names.position, "\" has ", patches + 1,
                 " rows, one for each patch and none for a class token, which is not supported: "
                 "need a plain ViT");
  if (!sensible || grid.height * grid.width != patches)
    tensor::fail(where, "an image of ", image.height, " x ", image.width, " in patches of ",
                 c.patch.height, " x ", c.patch.width, " does not give the ", patches,
                 " positions of \"", names.position, "\"");
  return image;
}

void check_bias(const Checkpoint& checkpoint, const Json& settings, const VitConfig& c) {
  if (settings.boolean("qkv_bias", c.qkv_bias) == c.qkv_bias) return;
  tensor::fail(settings["qkv_bias"].path(), "is ", c.qkv_bias ? "false" : "true",
               ", but the layers in ", checkpoint.folder, c.qkv_bias ? " have" : " have no",
               " biases");
}

VitConfig huggingface_config(const Checkpoint& checkpoint, const Names& names) {
  const Json& config = checkpoint.config;
  VitConfig c = config_from_shapes(checkpoint, names);
  checkpoint.agree(config, "hidden_size", c.width, "patch embeddings");
  checkpoint.agree(config, "num_channels", c.channels, "patch embeddings");
  checkpoint.agree(config, "num_hidden_layers", c.layers, "layers");
  checkpoint.agree(config, "intermediate_size", c.mlp, "weights of the MLP");
  if (c.pooler > 0)
    checkpoint.agree(config, "pooler_output_size", c.pooler, "weights of the pooler");
  if (c.classes > 0) checkpoint.agree(config, "num_labels", c.classes, "weights of the classifier");
  if (config.has("patch_size") && !(size_setting(config["patch_size"]) == c.patch))
    tensor::fail(config["patch_size"].path(), "does not fit the patch embeddings in ",
                 checkpoint.folder, ", which are for ", c.patch.height, " x ", c.patch.width);
  c.image = image_size(checkpoint, names, c, config, "image_size");
  c.heads = config.integer("num_attention_heads", 12);
  check_heads(config, c.heads, c.width);
  check_bias(checkpoint, config, c);
  c.eps = checkpoint.epsilon("layer_norm_eps", 1e-12);
  c.activation = activation_setting(config, "hidden_act");
  check_huggingface(config, c.width / c.heads);
  if (c.pooler > 0 && config.text("pooler_act", "tanh") != "tanh")
    tensor::fail(config["pooler_act"].path(), "got \"", config["pooler_act"].text(),
                 "\", only \"tanh\" is supported");
  return c;
}

VitConfig timm_config(const Checkpoint& checkpoint, const Names& names) {
  refuse_other_timm_models(checkpoint);
  VitConfig c = config_from_shapes(checkpoint, names);
  const Json& config = checkpoint.config;
  const Json args =
      config.has("model_args") ? config["model_args"] : Json::parse("{}", "model_args");
  checkpoint.agree(config, "num_features", c.width, "patch embeddings");
  checkpoint.agree(config, "num_classes", c.classes, "weights of the head");
  checkpoint.agree(args, "embed_dim", c.width, "patch embeddings");
  checkpoint.agree(args, "depth", c.layers, "blocks");
  checkpoint.agree(args, "in_chans", c.channels, "patch embeddings");
  checkpoint.agree(args, "num_classes", c.classes, "weights of the head");
  // timm truncates the product.
  const double ratio = args.number("mlp_ratio", 0);
  if (args.has("mlp_ratio") &&
      static_cast<double>(c.mlp) != std::trunc(static_cast<double>(c.width) * ratio))
    tensor::fail(args["mlp_ratio"].path(), "is ", ratio, ", but the weights of the MLP in ",
                 checkpoint.folder, " are for ", c.mlp, " features, not ", c.width, " times that");
  check_bias(checkpoint, args, c);
  if (args.has("patch_size") && !(size_setting(args["patch_size"]) == c.patch))
    tensor::fail(args["patch_size"].path(), "does not fit the patch embeddings in ",
                 checkpoint.folder, ", which are for ", c.patch.height, " x ", c.patch.width);
  c.image = image_size(checkpoint, names, c, args, "img_size");
  c.heads = read_timm_heads(config, args, c.width);
  check_heads(config, c.heads, c.width);
  c.eps = 1e-6;
  c.activation = activation_setting(args, "act_layer");
  for (const Json& settings : {config, args}) check_pooling(settings, c);
  check_timm(config);
  return c;
}

// ---- Loading

/// Our path of a parameter to the checkpoint's name.
Source source_of(const Names& names, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string leaf = path.substr(dot + 1);  // "weight"
  std::string part = path.substr(0, dot);
  if (path == "embeddings.cls_token") return {names.cls_token};
  if (path == "embeddings.position") return {names.position};
  if (part == "embeddings.patch") return {names.patch + "." + leaf};
  if (part == "norm") return {names.norm + "." + leaf};
  if (part == "classifier") return {names.classifier + "." + leaf};
  if (part == "pooler") return {names.pooler + "." + leaf};
  part.erase(0, part.find('.') + 1);  // "layers."
  const std::string number = part.substr(0, part.find('.'));
  const std::string within = part.substr(number.size() + 1);
  Source source{names.layers + number + "." + names.layer.at(within) + "." + leaf};
  if (names.timm && within.starts_with("attention.") && within != "attention.output") {
    source.parts = 3;
    source.part = within == "attention.query" ? 0 : within == "attention.key" ? 1 : 2;
  }
  return source;
}

/// Tensors that are known and not needed.
bool ignored(const Names& names, const VitConfig& c, const std::string& name) {
  if (name.ends_with("embeddings.mask_token")) return true;  // of images that are masked
  if (names.timm) return name.starts_with("pre_logits.");    // timm leaves it out, too
  return c.pooler == 0 && name.starts_with(names.pooler + ".");
}

/// Very old timm files hold the patch embedding as a matrix [width, channels * patch * patch].
Checkpoint with_patch_kernel(Checkpoint checkpoint, const Names& names) {
  const auto found = checkpoint.tensors.find(names.patch + ".weight");
  if (found == checkpoint.tensors.end() || found->second.rank() != 2) return checkpoint;
  const std::int64_t columns = found->second.shape(1), channels = 3;
  const auto side =
      static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(columns) / 3)));
  if (channels * side * side != columns)
    tensor::fail(checkpoint.folder, "the tensor \"", found->first, "\" has the shape ",
                 found->second.shape(), ", need [width, 3 * patch * patch] or 4 axes");
  found->second = found->second.reshape({found->second.shape(0), channels, side, side});
  return checkpoint;
}

/// How images are prepared, which must give what the model takes.
Preprocessing preprocessing_of(const Checkpoint& checkpoint, const LoadedVit& vit) {
  const Size image = vit.config.image;
  const bool any_size = vit.config.position_resize != PositionResize::refuse;
  if (!vit.timm || checkpoint.preprocessor || checkpoint.takes == Takes::tensors)
    return huggingface_preprocessing(checkpoint, image, "ViT", any_size);
  const Json& config = checkpoint.config;
  const Preprocessing rule =
      timm_preprocessing(config.has("pretrained_cfg") ? config["pretrained_cfg"] : config, image);
  require_image(rule, image, config, any_size);
  return rule;
}

}  // namespace

LoadedVit load_vit(const Checkpoint& folder, bool resize_position) {
  require_vit(folder.config);
  const Checkpoint stored = folder.stripped("backbone.");
  const Names names = detect(stored);
  const Checkpoint checkpoint = with_patch_kernel(stored, names);
  LoadedVit vit;
  vit.timm = names.timm;
  vit.config = names.timm ? timm_config(checkpoint, names) : huggingface_config(checkpoint, names);
  if (resize_position)
    vit.config.position_resize = names.timm ? PositionResize::timm : PositionResize::huggingface;
  vit.preprocessing = preprocessing_of(checkpoint, vit);
  if (vit.config.classes > 0) vit.labels = read_labels(checkpoint.config, vit.config.classes);
  vit.scores = read_scores(checkpoint.config, vit.config.classes);
  vit.model = Vit::sized(vit.config);
  tensor::nn::load(
      vit.model, checkpoint.tensors,
      {.file = checkpoint.folder,
       .rename = [&](const std::string& path) { return source_of(names, path); },
       .ignore = [&](const std::string& name) { return ignored(names, vit.config, name); }});
  return vit;
}

}  // namespace models::vit

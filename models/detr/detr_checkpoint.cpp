// Translates between the parameters of a Detr and the names of the public checkpoints.
#include "models/detr/detr_checkpoint.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "models/common/labels.h"
#include "models/common/names.h"
#include "models/detr/detr_processing.h"
#include "models/detr/detr_settings.h"

namespace models::detr {

using tensor::Json;
using tensor::nn::Source;
using tensor::nn::StateDict;

namespace {

// ---- Names

struct Word {
  std::string_view ours, theirs;
};

constexpr Word kHubWords[] = {
    {"encoder", "model.encoder.layers"},
    {"decoder", "model.decoder.layers"},
    {"decoder_norm", "model.decoder.layernorm"},
    {"input_projection", "model.input_projection"},
    {"queries", "model.query_position_embeddings"},
    {"class_head", "class_labels_classifier"},
    {"box_head", "bbox_predictor.layers"},
    {"self_attention", "self_attn"},
    {"cross_attention", "encoder_attn"},
    {"self_attention_norm", "self_attn_layer_norm"},
    {"cross_attention_norm", "encoder_attn_layer_norm"},
    {"ffn_norm", "final_layer_norm"},
    {"ffn", ""},
    {"query", "q_proj"},
    {"key", "k_proj"},
    {"value", "v_proj"},
    {"output", "out_proj"},
};

// Here "ffn_norm" is the second norm of an encoder layer and the third of a decoder layer.
constexpr Word kOriginalWords[] = {
    {"encoder", "transformer.encoder.layers"},
    {"decoder", "transformer.decoder.layers"},
    {"decoder_norm", "transformer.decoder.norm"},
    {"input_projection", "input_proj"},
    {"queries", "query_embed"},
    {"class_head", "class_embed"},
    {"box_head", "bbox_embed.layers"},
    {"self_attention", "self_attn"},
    {"cross_attention", "multihead_attn"},
    {"self_attention_norm", "norm1"},
    {"cross_attention_norm", "norm2"},
    {"ffn", ""},
    {"fc1", "linear1"},
    {"fc2", "linear2"},
    {"output", "out_proj"},
};

std::string join(std::span<const std::string> parts) {
  std::string name;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!name.empty()) name += '.';
    name += part;
  }
  return name;
}

std::string translate(std::vector<std::string> parts, std::span<const Word> words) {
  for (std::string& part : parts) {
    const auto word = std::ranges::find(words, part, &Word::ours);
    if (word != words.end()) part = word->theirs;
  }
  return join(parts);
}

/// "0" + 1 is "1": these names count stages and layers from one.
std::string successor(const std::string& number) { return std::to_string(std::stoll(number) + 1); }

/// Torchvision's names, of "stem.conv.weight", "stages.0.1.layers.2.norm.bias" and the like.
std::string torchvision_name(const std::vector<std::string>& path) {
  const bool norm = path[path.size() - 2] == "norm";
  const std::string& leaf = path.back();
  if (path[0] == "stem") return join(std::array{std::string(norm ? "bn1" : "conv1"), leaf});
  const std::string block = "layer" + successor(path[1]) + "." + path[2];
  if (path[3] == "shortcut") return block + ".downsample." + (norm ? "1." : "0.") + leaf;
  return block + (norm ? ".bn" : ".conv") + successor(path[4]) + "." + leaf;
}

/// The names of transformers' own ResNet.
std::string transformers_name(const std::vector<std::string>& path) {
  const std::string leaf =
      (path[path.size() - 2] == "norm" ? ".normalization." : ".convolution.") + path.back();
  if (path[0] == "stem") return "embedder.embedder" + leaf;
  const std::string block = "encoder.stages." + path[1] + ".layers." + path[2];
  if (path[3] == "shortcut") return block + ".shortcut" + leaf;
  return block + ".layer." + path[4] + leaf;
}

/// The hub's spelling of names that other versions of transformers or a panoptic model give.
std::string canonical(std::string name) {
  if (name.starts_with("detr.")) name.erase(0, 5);
  constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
      {"model.backbone.model.", "model.backbone.conv_encoder.model."},
      {"._backbone.", "."},
      {".o_proj.", ".out_proj."},
      {".mlp.fc", ".fc"}};
  for (const auto& [alias, hub] : kAliases)
    if (const std::size_t at = name.find(alias); at != std::string::npos)
      name.replace(at, alias.size(), hub);
  return name;
}

StateDict canonical(const Checkpoint& checkpoint) {
  StateDict state;
  for (const auto& [name, tensor] : checkpoint.tensors)
    if (!state.emplace(canonical(name), tensor).second)
      tensor::fail(checkpoint.folder, "\"", name, "\" and another tensor both stand for \"",
                   canonical(name), "\"");
  return state;
}

Names detect(const StateDict& state, const std::string& folder) {
  constexpr const char *kOriginal = "input_proj.weight", *kHub = "model.input_projection.weight";
  if (state.contains(kOriginal)) return Names::original;
  if (!state.contains(kHub))
    tensor::fail(folder, "does not hold a DETR: there is neither a tensor \"", kHub,
                 "\" (Hugging Face) nor \"", kOriginal, "\" (the original repository)");
  const bool own =
      state.contains("model.backbone.conv_encoder.model.embedder.embedder.convolution.weight");
  return own ? Names::no_timm : Names::hub;
}

bool not_needed(const std::string& name) {
  // The last two are the segmentation heads of a panoptic model.
  return name.ends_with("num_batches_tracked") || name.starts_with("mask_head.") ||
         name.starts_with("bbox_attention.");
}

// ---- Sizes

/// Looks at the shapes of a checkpoint by the paths of a Detr. What is not there has the size that
/// a standard model has; loading then reports all that is missing.
struct Shapes {
  const StateDict& state;
  Names names;

  const tensor::Tensor* find(const std::string& path) const {
    const auto found = state.find(checkpoint_name(path, names).name);
    return found == state.end() ? nullptr : &found->second;
  }
  std::int64_t extent(const std::string& path, int axis, std::int64_t otherwise) const {
    const tensor::Tensor* tensor = find(path);
    return tensor && tensor->rank() > axis ? tensor->shape(axis) : otherwise;
  }
  /// How many of "<prefix>.0.<rest>", "<prefix>.1.<rest>", ... there are.
  std::int64_t count(const std::string& prefix, const std::string& rest) const {
    std::int64_t n = 0;
    while (find(prefix + "." + std::to_string(n) + "." + rest)) ++n;
    return n;
  }
};

ResNetConfig backbone_config(const Shapes& shapes) {
  ResNetConfig config{.channels = shapes.extent("backbone.stem.conv.weight", 1, 3),
                      .stem = shapes.extent("backbone.stem.conv.weight", 0, 64),
                      .stages = {}};
  const std::int64_t stages = shapes.count("backbone.stages", "0.layers.0.conv.weight");
  if (stages == 0) return ResNetConfig::resnet50();
  config.basic = !shapes.find("backbone.stages.0.0.layers.2.conv.weight");
  for (std::int64_t s = 0; s < stages; ++s) {
    const std::string stage = "backbone.stages." + std::to_string(s);
    config.stages.push_back(
        {.blocks = shapes.count(stage, "layers.0.conv.weight"),
         .width = shapes.extent(stage + ".0.layers.0.conv.weight", 0, 64),
         .out = shapes.extent(stage + ".0.layers." + (config.basic ? "1" : "2") + ".conv.weight", 0,
                              256)});
  }
  return config;
}

DetrConfig config_of(const Shapes& shapes) {
  const DetrConfig standard;
  const auto layers = [&](const std::string& stack, const std::string& rest) {
    return shapes.count(stack, rest + ".weight");
  };
  return {.backbone = backbone_config(shapes),
          .width = shapes.extent("input_projection.weight", 0, standard.width),
          .queries = shapes.extent("queries.weight", 0, standard.queries),
          .classes = shapes.extent("class_head.weight", 0, standard.classes + 1) - 1,
          .encoder_layers = layers("encoder", "ffn.fc1"),
          .encoder_heads = standard.encoder_heads,
          .encoder_ffn = shapes.extent("encoder.0.ffn.fc1.weight", 0, standard.encoder_ffn),
          .decoder_layers = layers("decoder", "ffn.fc1"),
          .decoder_heads = standard.decoder_heads,
          .decoder_ffn = shapes.extent("decoder.0.ffn.fc1.weight", 0, standard.decoder_ffn)};
}

// ---- config.json

void require(const Json& config, std::string_view key, std::string_view needed,
             std::string_view why) {
  const std::string got = config.text(key, needed);
  if (got != needed)
    tensor::fail(config.path(), key, " is \"", got, "\", need \"", needed, "\": ", why);
}

/// Refuses what this DETR does not compute, instead of computing something else.
void check_supported(const Json& config) {
  if (config.boolean("auxiliary_loss", false))
    tensor::fail(
        config.path(),
        "auxiliary_loss is true: transformers then normalises the state after every decoder "
        "layer, which this DETR does not; set it to false if the model was trained with "
        "the original code");
  require(config, "activation_function", "relu", "DETR's feed-forward layers are built with ReLU");
  require(config, "position_embedding_type", "sine", "learned positions are not supported");
  if (!config.has("backbone_config")) return;
  const Json backbone = config["backbone_config"];
  require(backbone, "hidden_act", "relu", "ResNet is built with ReLU");
  if (backbone.boolean("downsample_in_bottleneck", false))
    tensor::fail(backbone.path(), "downsample_in_bottleneck is true: that is ResNet v1, need v1.5");
}

/// backbone_config describes the tensors only where no timm model is named in its place.
void check_backbone(const Json& config, const ResNetConfig& found) {
  if (config.has("backbone") || !config.has("backbone_config")) return;
  const Json backbone = config["backbone_config"];
  if (backbone.text("model_type", "resnet") != "resnet") return;
  std::vector<std::int64_t> depths, widths;
  for (const ResNetConfig::Stage& stage : found.stages)
    depths.push_back(stage.blocks), widths.push_back(stage.out);
  const auto check = [&](std::string_view key, const std::vector<std::int64_t>& tensors) {
    if (backbone.has(key) && backbone[key].ints() != tensors)
      tensor::fail(backbone[key].path(), "does not agree with the tensors, which say ",
                   tensor::Dims(tensors));
  };
  const std::string blocks = found.basic ? "basic" : "bottleneck";
  if (backbone.text("layer_type", blocks) != blocks)
    tensor::fail(backbone["layer_type"].path(), "does not agree with the tensors, which say ",
                 blocks);
  const std::string last = "stage" + std::to_string(found.stages.size());
  if (backbone.has("out_features")) {
    const Json used = backbone["out_features"];
    if (used.size() == 0 || used[used.size() - 1].text() != last)
      tensor::fail(used.path(), "need \"", last, "\" at its end: DETR reads the last stage");
  }
  check("depths", depths);
  check("hidden_sizes", widths);
  if (backbone.integer("num_channels", found.channels) != found.channels)
    tensor::fail(backbone["num_channels"].path(), "does not agree with the tensors, which say ",
                 found.channels);
  if (backbone.integer("embedding_size", found.stem) != found.stem)
    tensor::fail(backbone["embedding_size"].path(), "does not agree with the tensors, which say ",
                 found.stem);
}

/// DETR takes the last of the maps that a backbone is told to give.
void check_last_stage(const Json& config, std::size_t stages) {
  for (const char* key : {"backbone_config", "backbone_kwargs"}) {
    if (!config.has(key) || !config[key].has("out_indices")) continue;
    const tensor::Ints used = config[key]["out_indices"].ints();
    if (used.empty() || (used.back() != static_cast<std::int64_t>(stages) && used.back() != -1))
      tensor::fail(config[key]["out_indices"].path(), "need ", stages,
                   " at its end: DETR reads the last stage");
  }
}

bool is_dilated(const Json& config) {
  bool dilated = config.boolean("dilation", false);
  for (const char* key : {"backbone_config", "backbone_kwargs"}) {
    if (!config.has(key) || !config[key].has("output_stride")) continue;
    const Json stride = config[key]["output_stride"];
    if (stride.integer() != 16 && stride.integer() != 32)
      tensor::fail(stride.path(), "got ", stride.integer(), ", need 32, or 16 for DC5");
    dilated = dilated || stride.integer() == 16;
  }
  return dilated;
}

void check_sizes(const Json& config, const DetrConfig& sizes) {
  const auto check_heads = [&](std::string_view key, std::int64_t heads) {
    if (heads < 1 || sizes.width % heads != 0)
      tensor::fail(config.path(), key, " is ", heads, ", need a divisor of the width ",
                   sizes.width);
  };
  check_heads("encoder_attention_heads", sizes.encoder_heads);
  check_heads("decoder_attention_heads", sizes.decoder_heads);
  // A sine and a cosine for each of two coordinates.
  const std::int64_t fewest = std::min({sizes.classes, sizes.queries, sizes.decoder_layers});
  if (sizes.width < 4 || sizes.width % 4 != 0 || fewest < 1)
    tensor::fail(config.path(), "got a width of ", sizes.width, ", ", sizes.classes, " classes, ",
                 sizes.queries, " queries and ", sizes.decoder_layers,
                 " decoder layers, need a width that 4 divides and at least one of the others");
}

/// config.json may leave a size out, but not contradict the tensors.
void check_agreement(const Checkpoint& checkpoint, Names names, const DetrConfig& sizes) {
  const Json& config = checkpoint.config;
  const auto agree = [&](std::string_view key, std::int64_t value, const std::string& path) {
    checkpoint.agree(config, key, value, "tensors \"" + checkpoint_name(path, names).name + "\"");
  };
  for (const char* key : {"d_model", "hidden_size"})
    agree(key, sizes.width, "input_projection.weight");
  agree("num_channels", sizes.backbone.channels, "backbone.stem.conv.weight");
  agree("num_queries", sizes.queries, "queries.weight");
  for (const char* key : {"encoder_layers", "num_hidden_layers"})
    agree(key, sizes.encoder_layers, "encoder.0.ffn.fc1.weight");
  agree("num_labels", sizes.classes, "class_head.weight");
  if (sizes.encoder_layers > 0)
    agree("encoder_ffn_dim", sizes.encoder_ffn, "encoder.0.ffn.fc1.weight");
  agree("decoder_layers", sizes.decoder_layers, "decoder.0.ffn.fc1.weight");
  agree("decoder_ffn_dim", sizes.decoder_ffn, "decoder.0.ffn.fc1.weight");
  check_last_stage(config, sizes.backbone.stages.size());
  check_backbone(config, sizes.backbone);
}

}  // namespace

Source checkpoint_name(const std::string& path, Names names) {
  std::vector<std::string> parts = split_name(path);
  if (parts[0] == "backbone") {
    const std::vector<std::string> inner(parts.begin() + 1, parts.end());
    if (names == Names::original) return {"backbone.0.body." + torchvision_name(inner)};
    return {"model.backbone.conv_encoder.model." +
            (names == Names::hub ? torchvision_name(inner) : transformers_name(inner))};
  }
  if (names != Names::original) return {translate(parts, kHubWords)};
  constexpr std::array<std::string_view, 3> kFused = {"query", "key", "value"};
  if (parts.size() == 5) {
    const auto part = std::ranges::find(kFused, parts[3]);
    if (part != kFused.end()) {
      const std::string leaf = "in_proj_" + parts[4];
      return {translate({parts[0], parts[1], parts[2], leaf}, kOriginalWords),
              static_cast<int>(part - kFused.begin()), 3};
    }
  }
  if (parts.size() == 4 && parts[2] == "ffn_norm")
    parts[2] = parts[0] == "decoder" ? "norm3" : "norm2";
  return {translate(parts, kOriginalWords)};
}

Detr load_detr(const Checkpoint& checkpoint) {
  require_detr(checkpoint.config);
  const StateDict state = canonical(checkpoint);
  const Names names = detect(state, checkpoint.folder);
  const Json& config = checkpoint.config;
  check_supported(config);
  DetrConfig sizes = config_of({state, names});
  sizes.backbone.dilated = is_dilated(config);
  // transformers has a second name for the encoder's.
  sizes.encoder_heads = config.integer("encoder_attention_heads",
                                       config.integer("num_attention_heads", sizes.encoder_heads));
  sizes.decoder_heads = config.integer("decoder_attention_heads", sizes.decoder_heads);
  Detr detr = Detr::sized(sizes);
  tensor::nn::load(
      detr, state,
      {.file = checkpoint.folder,
       .rename = [names](const std::string& path) { return checkpoint_name(path, names); },
       .ignore = not_needed});
  check_sizes(config, sizes);
  check_agreement(checkpoint, names, sizes);
  check_detr(config);
  return detr;
}

Detector load_detector(const Checkpoint& checkpoint) {
  Detector made = detector(load_detr(checkpoint));
  made.labels = read_labels(checkpoint.config, std::ssize(made.labels));
  if (checkpoint.preprocessor)
    made.preprocessing = read_preprocessing(*checkpoint.preprocessor, processors());
  return made;
}

Checkpoint open_detr(const std::string& folder, Takes takes) {
  return open_checkpoint(
      folder,
      ", as no original DETR checkpoint has: write one beside it, {} for a published model; those "
      "with DC5 need {\"dilation\": true}",
      takes);
}

Detr load_detr(const std::string& folder) { return load_detr(open_detr(folder)); }

}  // namespace models::detr

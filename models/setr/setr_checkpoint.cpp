// Translates between the parameters of a Setr and the names of the public checkpoints.
#include "models/setr/setr_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "models/common/labels.h"
#include "models/common/names.h"
#include "models/common/settings.h"
#include "models/setr/setr_classes.h"

namespace models::setr {

using tensor::Json;
using tensor::nn::Source;

namespace {

// ---- Names

/// A parameter of an encoder layer: "layers.3.attention.query.weight".
Source layer_name(const std::vector<std::string>& parts, Flavour flavour) {
  struct Row {
    std::string_view ours, fudan, mmseg;
  };
  constexpr Row kRows[] = {{"norm_before", "norm1", "ln1"},
                           {"norm_after", "norm2", "ln2"},
                           {"fc1", "mlp.fc1", "ffn.layers.0.0"},
                           {"fc2", "mlp.fc2", "ffn.layers.1"}};
  const bool fudan = flavour == Flavour::fudan;
  const std::string layer = (fudan ? "backbone.blocks." : "backbone.layers.") + parts[1] + ".";
  const std::string& leaf = parts.back();
  if (parts[2] != "attention") {
    const auto row = std::ranges::find(kRows, parts[2], &Row::ours);
    return {layer + std::string(fudan ? row->fudan : row->mmseg) + "." + leaf};
  }
  if (parts[3] == "output") return {layer + (fudan ? "attn.proj." : "attn.attn.out_proj.") + leaf};
  constexpr std::array<std::string_view, 3> kFused = {"query", "key", "value"};
  const auto part = std::ranges::find(kFused, parts[3]) - kFused.begin();
  return {layer + (fudan ? "attn.qkv." : "attn.attn.in_proj_") + leaf, static_cast<int>(part), 3};
}

/// A convolution or norm of the MLA head: "streams.2.smooth.norm.bias".
Source stream_name(const std::vector<std::string>& parts, Flavour flavour) {
  const std::string& stage = parts[2];
  if (flavour == Flavour::mmseg) {
    // mmseg numbers what comes after the sum from the deepest stream on.
    const std::string reversed = std::to_string(3 - std::stoi(parts[1]));
    if (stage == "norm") return {"neck.norm." + parts[1] + "." + parts[3]};
    const std::string leaf = (parts[3] == "norm" ? ".bn." : ".conv.") + parts[4];
    if (stage == "lateral") return {"neck.channel_proj." + parts[1] + leaf};
    if (stage == "smooth") return {"neck.feat_extract." + reversed + leaf};
    return {"decode_head.up_convs." + reversed + (stage == "narrow" ? ".0" : ".1") + leaf};
  }
  if (stage == "norm") return {"backbone.norm_" + parts[1] + "." + parts[3]};
  const std::string map = std::to_string(2 + std::stoi(parts[1]));
  const bool norm = parts[3] == "norm";
  const std::string leaf = (norm ? ".1." : ".0.") + parts[4];
  if (stage == "lateral") return {"backbone.mla.mla_p" + map + "_1x1" + leaf};
  if (stage == "smooth") return {"backbone.mla.mla_p" + map + leaf};
  if (stage == "narrow") return {"decode_head.mlahead.head" + map + leaf};
  return {"decode_head.mlahead.head" + map + (norm ? ".4." : ".3.") + parts[4]};
}

std::string classifier_name(const SetrConfig& config) {
  if (config.flavour == Flavour::mmseg) return "decode_head.conv_seg.";
  if (config.head == Head::mla) return "decode_head.cls.";
  return "decode_head.conv_" + std::to_string(config.decoder_layers) + ".";
}

// ---- Sizes

/// The rows (axis 0) or another extent of a tensor, or what the default model has.
std::int64_t extent(const Checkpoint& checkpoint, const std::string& path, const SetrConfig& config,
                    int axis, std::int64_t otherwise) {
  const auto found = checkpoint.tensors.find(checkpoint_name(path, config).name);
  if (found == checkpoint.tensors.end() || found->second.rank() <= axis) return otherwise;
  return found->second.shape(axis);
}

/// Flavour, head and the number of their convolutions, by the names that tell them apart.
SetrConfig detect(const Checkpoint& checkpoint) {
  SetrConfig config;
  const bool fudan = checkpoint.has("backbone.blocks.0.attn.qkv.weight");
  if (!fudan && !checkpoint.has("backbone.layers.0.attn.attn.in_proj_weight"))
    tensor::fail(checkpoint.folder, "does not hold a SETR: there is neither a tensor ",
                 "\"backbone.blocks.0.attn.qkv.weight\" (fudan) nor ",
                 "\"backbone.layers.0.attn.attn.in_proj_weight\" (mmseg)");
  config.flavour = fudan ? Flavour::fudan : Flavour::mmseg;
  const std::string convolutions = fudan ? "decode_head.syncbn_fc_" : "decode_head.up_convs.";
  if (checkpoint.has("backbone.mla.mla_p2_1x1.0.weight") ||
      checkpoint.has("neck.channel_proj.0.conv.weight")) {
    config.head = Head::mla;
    return config;
  }
  config.decoder_layers = std::max<std::int64_t>(checkpoint.count(convolutions), 1);
  config.head = config.decoder_layers > 1 ? Head::pup : Head::naive;
  return config;
}

void read_sizes(SetrConfig& config, const Checkpoint& checkpoint) {
  const auto size = [&](const std::string& path, int axis, std::int64_t otherwise) {
    return extent(checkpoint, path, config, axis, otherwise);
  };
  const bool fudan = config.flavour == Flavour::fudan, mla = config.head == Head::mla;
  config.layers = checkpoint.count(fudan ? "backbone.blocks." : "backbone.layers.");
  config.width = size("patches.weight", 0, config.width);
  config.channels = size("patches.weight", 1, config.channels);
  config.patch_size = size("patches.weight", 2, config.patch_size);
  config.ffn = size("layers.0.fc1.weight", 0, config.ffn);
  config.classes = size("classifier.weight", 0, config.classes);
  config.decoder_channels = size(mla ? "streams.0.lateral.conv.weight" : "upsample.0.conv.weight",
                                 0, config.decoder_channels);
  config.head_channels = size("streams.0.narrow.conv.weight", 0, config.head_channels);
  const std::int64_t cells = size("position", 1, 1 + 24 * 24) - 1;
  const auto side = std::llround(std::sqrt(static_cast<double>(cells)));
  if (side < 1 || side * side != cells)
    tensor::fail(checkpoint.folder, "backbone.pos_embed has ", cells + 1,
                 " rows, need a class token and a square number of cells");
  config.image_size = side * config.patch_size;
  if (std::min({config.width, config.channels, config.patch_size, config.classes}) < 1)
    tensor::fail(checkpoint.folder, "got a width of ", config.width, ", ", config.channels,
                 " channels, patches of ", config.patch_size, " and ", config.classes,
                 " classes, need at least 1 of each");
}

// ---- config.json

/// The published encoders have heads of 64 features; for others config.json must say.
std::int64_t read_heads(const Checkpoint& checkpoint, const SetrConfig& config) {
  const Json& json = checkpoint.config;
  const bool published = config.width == 768 || config.width == 1024;
  if (!published && !json.has("num_attention_heads"))
    tensor::fail(json.path(), "has no \"num_attention_heads\", which the tensors cannot tell: ",
                 "need it for an encoder of width ", config.width);
  const std::int64_t heads = json.integer("num_attention_heads", config.width / 64);
  if (heads < 1 || config.width % heads != 0)
    tensor::fail(json.path(), "num_attention_heads is ", heads, ", need a divisor of the width ",
                 config.width);
  return heads;
}

/// "tap_layers", or the last layer, or for MLA the ends of the encoder's quarters.
std::vector<std::int64_t> read_taps(const Checkpoint& checkpoint, const SetrConfig& config) {
  const Json& json = checkpoint.config;
  const std::size_t count = config.head == Head::mla ? 4 : 1;
  std::vector<std::int64_t> taps;
  if (json.has("tap_layers")) {
    taps = json["tap_layers"].ints();
  } else if (count == 1) {
    taps = {config.layers - 1};
  } else if (config.layers % 4 == 0) {
    for (std::int64_t quarter = 1; quarter <= 4; ++quarter)
      taps.push_back(quarter * config.layers / 4 - 1);
  } else {
    tensor::fail(json.path(),
                 "has no \"tap_layers\", which the tensors cannot tell: need the four ",
                 "encoder layers (from 0) that feed the MLA head");
  }
  const bool ascending = std::ranges::adjacent_find(taps, std::greater_equal()) == taps.end();
  const auto exists = [&](std::int64_t layer) { return layer >= 0 && layer < config.layers; };
  if (taps.size() != count || !ascending || !std::ranges::all_of(taps, exists))
    tensor::fail(json["tap_layers"].path(), "need ", count, " ascending layer numbers from 0 to ",
                 config.layers - 1);
  return taps;
}

void check_agreement(const Checkpoint& checkpoint, const SetrConfig& config) {
  const Json& json = checkpoint.config;
  const auto check_word = [&](std::string_view key, std::string_view found) {
    if (json.text(key, found) != found)
      tensor::fail(json[key].path(), "is \"", json[key].text(), "\", but the tensors are \"", found,
                   "\"");
  };
  constexpr std::string_view kHeads[] = {"naive", "pup", "mla"};
  check_word("flavour", config.flavour == Flavour::fudan ? "fudan" : "mmseg");
  check_word("head", kHeads[static_cast<std::size_t>(config.head)]);
  const auto agree = [&](std::string_view key, std::int64_t value, const std::string& path) {
    checkpoint.agree(json, key, value, "tensors \"" + checkpoint_name(path, config).name + "\"");
  };
  agree("hidden_size", config.width, "patches.weight");
  agree("num_hidden_layers", config.layers, "layers.0.fc1.weight");
  agree("intermediate_size", config.ffn, "layers.0.fc1.weight");
  agree("image_size", config.image_size, "position");
  agree("patch_size", config.patch_size, "patches.weight");
  agree("num_channels", config.channels, "patches.weight");
  agree("num_labels", config.classes, "classifier.weight");
  if (config.head == Head::mla)
    agree("head_channels", config.head_channels, "streams.0.narrow.conv.weight");
  agree("decoder_channels", config.decoder_channels,
        config.head == Head::mla ? "streams.0.lateral.conv.weight" : "upsample.0.conv.weight");
}

/// mmseg's encoder has two settings that say what its layers get and give. Both implementations
/// drop the class token before the layers where the head is MLA.
void read_encoder(SetrConfig& config, const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  const bool mmseg = config.flavour == Flavour::mmseg;
  config.final_norm = mmseg && checkpoint.has("backbone.ln1.weight");
  if (json.boolean("final_norm", config.final_norm) != config.final_norm)
    tensor::fail(json["final_norm"].path(), "is ", config.final_norm ? "false" : "true",
                 ", but the tensors \"backbone.ln1\" of such a norm are ",
                 config.final_norm ? "there" : "not there");
  const bool usual = config.has_class_token();
  config.class_token = json.boolean("with_cls_token", usual);
  if (!mmseg && config.has_class_token() != usual)
    tensor::fail(json["with_cls_token"].path(), "is ", usual ? "false" : "true", ", but it is ",
                 usual ? "true" : "false", " for fudan's SETR with this head");
}

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {.used = {"model_type",
                                                "flavour",
                                                "head",
                                                "hidden_size",
                                                "num_hidden_layers",
                                                "num_attention_heads",
                                                "intermediate_size",
                                                "image_size",
                                                "patch_size",
                                                "num_channels",
                                                "num_labels",
                                                "decoder_channels",
                                                "head_channels",
                                                "tap_layers",
                                                "layer_norm_eps",
                                                "final_norm",
                                                "with_cls_token",
                                                "id2label",
                                                "label_names",
                                                "palette"},
                                       .harmless = {},
                                       // What mmseg's encoder can do besides, by its own names.
                                       .fixed = {{"output_cls_token", {"false"}},
                                                 {"patch_norm", {"false"}},
                                                 {"pre_norm", {"false"}},
                                                 {"out_origin", {"false"}},
                                                 {"interpolate_mode", {R"("bilinear")"}},
                                                 {"qkv_bias", {"true"}},
                                                 {"hidden_act", {R"("gelu")"}}}};
  return kKnown;
}

/// Names in a checkpoint that inference has no use for.
bool not_needed(const std::string& name, const SetrConfig& config) {
  if (name.ends_with("num_batches_tracked") || name.starts_with("auxiliary_head.")) return true;
  if (config.flavour == Flavour::mmseg) return false;
  return name.starts_with("decode_head.conv_seg.");  // trained by nobody: fudan's base class has it
}

}  // namespace

Source checkpoint_name(const std::string& path, const SetrConfig& config) {
  const std::vector<std::string> parts = split_name(path);
  const bool fudan = config.flavour == Flavour::fudan;
  const std::string& leaf = parts.back();
  if (parts[0] == "class_token") return {"backbone.cls_token"};
  if (parts[0] == "position") return {"backbone.pos_embed"};
  if (parts[0] == "patches")
    return {(fudan ? "backbone.patch_embed.proj." : "backbone.patch_embed.projection.") + leaf};
  if (parts[0] == "layers") return layer_name(parts, config.flavour);
  if (parts[0] == "streams") return stream_name(parts, config.flavour);
  if (parts[0] == "final_norm") return {"backbone.ln1." + leaf};
  if (parts[0] == "norm") return {"decode_head.norm." + leaf};
  if (parts[0] == "classifier") return {classifier_name(config) + leaf};
  const bool norm = parts[2] == "norm";
  if (fudan)
    return {(norm ? "decode_head.syncbn_fc_" : "decode_head.conv_") + parts[1] + "." + leaf};
  return {"decode_head.up_convs." + parts[1] + (norm ? ".0.bn." : ".0.conv.") + leaf};
}

Setr load_setr(const Checkpoint& checkpoint) {
  require_setting(checkpoint.config, {"model_type", {R"("setr")"}});
  SetrConfig config = detect(checkpoint);
  read_sizes(config, checkpoint);
  config.eps = checkpoint.epsilon("layer_norm_eps", config.eps);
  config.heads = read_heads(checkpoint, config);
  config.taps = read_taps(checkpoint, config);
  read_encoder(config, checkpoint);
  check_agreement(checkpoint, config);
  check_settings(checkpoint.config, known_settings());
  Setr net = Setr::sized(config);
  const auto rename = [&](const std::string& path) { return checkpoint_name(path, config); };
  const auto ignore = [&](const std::string& name) { return not_needed(name, config); };
  tensor::nn::load(net, checkpoint.tensors,
                   {.file = checkpoint.folder, .rename = rename, .ignore = ignore});
  return net;
}

Checkpoint open_setr(const std::string& folder, Takes takes) {
  return open_checkpoint(
      folder,
      ", as no public SETR checkpoint has: write one beside it, {} for a published model; others "
      "need \"num_attention_heads\", and with an MLA head \"tap_layers\"",
      takes);
}

std::vector<Color> read_palette(const Json& config, std::int64_t classes) {
  std::vector<Color> palette;
  if (!config.has("palette")) {
    for (const std::uint32_t rgb : default_colours(classes))
      palette.push_back({static_cast<std::uint8_t>(rgb >> 16), static_cast<std::uint8_t>(rgb >> 8),
                         static_cast<std::uint8_t>(rgb)});
    return palette;
  }
  const Json colors = config["palette"];
  if (!colors.is_array() || static_cast<std::int64_t>(colors.size()) != classes)
    tensor::fail(colors.path(), "need a list of ", classes, " colours [red, green, blue]");
  for (std::size_t i = 0; i < colors.size(); ++i) {
    const std::vector<std::int64_t> rgb = colors[i].ints();
    const auto is_level = [](std::int64_t x) { return x >= 0 && x <= 255; };
    if (rgb.size() != 3 || !std::ranges::all_of(rgb, is_level))
      tensor::fail(colors[i].path(), "need [red, green, blue], each from 0 to 255");
    palette.push_back({static_cast<std::uint8_t>(rgb[0]), static_cast<std::uint8_t>(rgb[1]),
                       static_cast<std::uint8_t>(rgb[2])});
  }
  return palette;
}

std::vector<std::string> read_class_names(const Json& config, std::int64_t classes) {
  if (config.has("id2label") || config.has("label_names")) return read_labels(config, classes);
  return default_names(classes);
}

}  // namespace models::setr

// From a checkpoint folder to a Depth Anything.
#include <algorithm>
#include <cmath>

#include "models/common/model_settings.h"
#include "models/common/processors.h"
#include "models/common/settings.h"
#include "models/dpt/dpt.h"

namespace models::dpt {

using tensor::Json;

namespace {

const KnownSettings& known_settings() {
  static const KnownSettings kKnown = {
      .used = {"model_type", "backbone_config", "patch_size", "reassemble_hidden_size",
               "reassemble_factors", "neck_hidden_sizes", "fusion_hidden_size", "head_hidden_size",
               "depth_estimation_type", "max_depth"},
      .harmless = {"use_pretrained_backbone", "use_timm_backbone", "id2label"},
      .fixed = {{"head_in_index", {"-1"}}}};
  return kKnown;
}

/// The hidden states that the neck reads.
std::vector<std::int64_t> read_taps(const Json& backbone, std::int64_t layers) {
  const tensor::Ints taps = backbone["out_indices"].ints();
  const auto in_order = [](std::int64_t a, std::int64_t b) { return a >= b; };
  if (taps.empty() || std::ssize(taps) > kMostStages || taps.front() < 0 || taps.back() > layers ||
      std::ranges::adjacent_find(taps, in_order) != taps.end())
    tensor::fail(backbone["out_indices"].path(), "need 1 to ", kMostStages,
                 " ascending numbers from 0, the embeddings, to ", layers, ", the last layer");
  return {taps.begin(), taps.end()};
}

/// By how much each of the images becomes larger.
std::vector<double> read_factors(const Json& config, const std::vector<double>& fallback,
                                 std::size_t count) {
  constexpr double kMost = 32;
  std::vector<double> factors = fallback;
  if (config.has("reassemble_factors")) factors = config["reassemble_factors"].numbers();
  const auto is_good = [](double factor) {
    const double times = factor < 1 ? 1 / factor : factor;
    return times >= 1 && times <= kMost && times == std::nearbyint(times);
  };
  if (factors.size() != count || !std::ranges::all_of(factors, is_good))
    tensor::fail(config["reassemble_factors"].path(), "need ", count,
                 " numbers, one a layer that is read: whole ones up to ", kMost,
                 " or one divided by such");
  return factors;
}

DptConfig read_config(const Checkpoint& checkpoint) {
  const Json& json = checkpoint.config;
  DptConfig c;
  Checkpoint backbone = checkpoint;
  backbone.config = json["backbone_config"];
  require_setting(backbone.config, {"model_type", {R"("dinov2")"}});
  require_setting(backbone.config, {"apply_layernorm", {"true"}});
  require_setting(backbone.config, {"reshape_hidden_states", {"false"}});
  c.backbone = dinov2::read_config(backbone);
  c.taps = read_taps(backbone.config, c.backbone.layers);
  checkpoint.agree(json, "patch_size", c.backbone.patch, "settings of the backbone");
  checkpoint.agree(json, "reassemble_hidden_size", c.backbone.width, "settings of the backbone");
  c.widths = positive_settings(json, "neck_hidden_sizes", c.widths, c.taps.size());
  c.factors = read_factors(json, c.factors, c.taps.size());
  c.fusion = positive_setting(json, "fusion_hidden_size", c.fusion);
  c.head = positive_setting(json, "head_hidden_size", c.head);
  if (c.fusion < 2) tensor::fail(json["fusion_hidden_size"].path(), "got 1, need at least 2");
  require_setting(json, {"depth_estimation_type", {R"("relative")", R"("metric")"}});
  c.is_metric = json.text("depth_estimation_type", "relative") == "metric";
  c.largest = json.number("max_depth", c.largest);
  if (!(c.largest > 0 && c.largest <= 1e6))
    tensor::fail(json["max_depth"].path(), "got ", c.largest,
                 ", need a number above 0 and at most 1e6");
  check_settings(json, known_settings());
  return c;
}

}  // namespace

Preprocessing default_preprocessing() {
  Preprocessing rule;
  rule.size = {SizeRule::Kind::multiples, {518, 518}, 0, 0, 14, true};
  rule.filter = Filter::bicubic;
  rule.normalization.mean = kImageNet.mean;
  rule.normalization.std = kImageNet.std;
  return rule;
}

VisionModel vision_model(const DptConfig& config, Dpt net) {
  VisionModel model = VisionModel::of(std::move(net));
  model.channels = config.backbone.channels;
  model.image = config.backbone.image;
  model.steps = config.backbone.layers + 1;
  model.preparation = preparation(default_preprocessing());
  model.is_nearness = !config.is_metric;
  return model;
}

VisionModel load_depth_anything(const Checkpoint& checkpoint, const LoadSettings&) {
  const DptConfig config = read_config(checkpoint);
  Dpt net = Dpt::sized(config);
  load_named(net, checkpoint, "", {.ignore = [](const std::string& name) {
               // There is nothing yet that the first image could be added to.
               return name == "backbone.embeddings.mask_token" ||
                      name.starts_with("neck.fusion_stage.layers.0.residual_layer1.");
             }});
  VisionModel model = vision_model(config, std::move(net));
  if (!checkpoint.preprocessor) return model;
  // What DPTImageProcessor does where the file says nothing.
  Preprocessing rule = default_preprocessing();
  rule.size = {SizeRule::Kind::exact, {384, 384}, 0, 0};
  const ProcessorClass rules{.name = "DPT", .defaults = rule, .fit = ProcessorClass::Fit::dpt};
  model.preparation = preparation(read_preprocessing(*checkpoint.preprocessor, {rules}));
  return model;
}

}  // namespace models::dpt

// Parameters and multiply-adds of SETR, part by part.
#include "models/setr/setr_info.h"

#include <algorithm>

namespace models::setr {

namespace nn = tensor::nn;

namespace {

template <class M>
std::int64_t learned(M& module) {
  std::int64_t count = 0;
  for (const nn::Parameter& p : nn::parameters(module))
    if (p.name.find("running_") == std::string::npos) count += p.tensor->size();
  return count;
}

/// Every kernel of SETR keeps the size of its map.
std::int64_t conv_macs(const nn::Conv2d& conv, std::int64_t cells) {
  return conv2d_macs(conv.weight.shape(), cells, 1);
}

InfoRow describe_head(Setr& net, std::int64_t cells, std::int64_t& peak) {
  const bool mmseg = net.config.flavour == Flavour::mmseg, mla = net.config.head == Head::mla;
  InfoRow row{.part = "head", .layers = 1};
  if (!mla) row.parameters = learned(net.norm);
  for (MlaStream& stream : net.streams) {
    row.parameters += learned(stream);
    row.layers += 4;
    for (const ConvNorm* layer : {&stream.lateral, &stream.smooth, &stream.narrow, &stream.refine})
      row.macs += conv_macs(layer->conv, cells);
  }
  std::int64_t area = mla ? 16 * cells : cells;
  for (std::size_t i = 0; i < net.upsample.size(); ++i) {
    row.parameters += learned(net.upsample[i]);
    row.layers += 1;
    row.macs += conv_macs(net.upsample[i].conv, area);
    const std::int64_t enlarge = net.config.head == Head::pup ? 4 : 16;
    if (mmseg || i + 1 < net.upsample.size()) area *= enlarge;
  }
  row.parameters += learned(net.classifier);
  row.macs += conv_macs(net.classifier, area);
  peak = 2 * area * net.classifier.weight.shape(1);
  return row;
}

}  // namespace

Info describe(Setr& net, const std::string& model, Size window) {
  const SetrConfig& c = net.config;
  const std::int64_t rows = (window.height + c.patch_size - 1) / c.patch_size;
  const std::int64_t columns = (window.width + c.patch_size - 1) / c.patch_size;
  const std::int64_t cells = rows * columns;
  const std::int64_t tokens = c.has_class_token() ? cells + 1 : cells;

  Info info{.model = model, .input = "", .rows = {}};
  info.input = "1 x " + std::to_string(c.channels) + " x " + std::to_string(window.height) + " x " +
               std::to_string(window.width);
  info.rows.push_back({.part = "patch embedding",
                       .parameters = nn::parameter_count(net.patches) + net.class_token.size() +
                                     net.position.size(),
                       .macs = conv_macs(net.patches, cells)});
  InfoRow encoder{.part = "encoder", .layers = c.layers};
  for (vit::VitLayer& layer : net.layers) {
    encoder.parameters += nn::parameter_count(layer);
    encoder.macs += 4 * linear_macs(tokens, c.width, c.width) +
                    attention_macs(tokens, tokens, c.width) +
                    2 * linear_macs(tokens, c.width, c.ffn);
  }
  encoder.parameters += learned(net.final_norm);
  info.rows.push_back(encoder);
  std::int64_t head_peak = 0;
  info.rows.push_back(describe_head(net, cells, head_peak));
  info.peak_activations = std::max({c.heads * tokens * tokens + 5 * tokens * c.width,
                                    tokens * (3 * c.width + 2 * c.ffn), head_peak,
                                    2 * c.classes * window.height * window.width});
  return info;
}

VisionModel vision_model(Setr net, const std::vector<std::string>& names,
                         const std::vector<Color>& colors, SetrPreprocessing rule,
                         const std::optional<SizeRule>& scale) {
  if (scale) {
    rule.resize = true;
    rule.exact.reset();
    rule.scale = {scale->longest, scale->shortest};
  }
  const auto held = std::make_shared<Setr>(std::move(net));
  const SetrConfig& config = held->config;
  const Size image{config.image_size, config.image_size};
  const Flavour flavour = config.flavour;
  VisionModel model;
  model.run = [held](const tensor::Tensor& pixels, const Observer& observe) {
    return tensor::nn::StateDict{{"logits", (*held)(pixels, observe)}};
  };
  model.parameters = [held] { return tensor::nn::parameters(*held); };
  model.info = [held, image](const std::string& name) { return describe(*held, name, image); };
  model.channels = config.channels;
  model.image = image;
  model.steps = config.layers + 1;
  model.preparation = {
      .size = [rule](Size picture) { return preprocessed_size(picture, rule); },
      .fit = [rule](const tensor::Tensor& picture) { return fit_levels(picture, rule); },
      .normalize =
          [rule, flavour](const tensor::Tensor& levels) {
            return normalize_image(levels, rule, flavour);
          },
      .normalize_levels =
          [rule, flavour](const tensor::Tensor& levels) {
            return normalize_levels(levels, rule, flavour);
          }};
  model.labels = names;
  model.colors = colors;
  model.window = config.image_size;
  model.is_window_least = flavour == Flavour::fudan;
  return model;
}

}  // namespace models::setr

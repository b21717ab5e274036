// ViT-B/16, L/16 and H/14 (table 1 of the paper), and counting.
#include "models/vit/vit_standard.h"

#include "tensor/error.h"

namespace models::vit {

std::vector<std::string> standard_names() {
  return {"vit-base-patch16-224", "vit-large-patch16-224", "vit-huge-patch14-224"};
}

VitConfig standard_config(const std::string& name) {
  if (name == "vit-base-patch16-224") return {};
  if (name == "vit-large-patch16-224")
    return {.width = 1024, .layers = 24, .heads = 16, .mlp = 4096};
  if (name == "vit-huge-patch14-224")
    return {.width = 1280, .layers = 32, .heads = 16, .mlp = 5120, .patch = {14, 14}};
  tensor::fail("standard_config", "there is no standard model \"", name, "\"");
}

Info describe(const std::string& name, Vit& model, const VitConfig& c) {
  const Size grid = c.grid();
  const std::int64_t patches = grid.height * grid.width, tokens = patches + 1;
  const std::int64_t layer = transformer_macs(tokens, c.width, 2 * c.width * c.mlp);
  Info info{
      .model = name, .input = shape_text(c.channels, c.image), .rows = {}, .peak_activations = 0};
  using tensor::nn::parameter_count;
  info.rows.push_back(
      {"embeddings", 1, parameter_count(model.embeddings),
       conv2d_macs(model.embeddings.patch.weight.shape(), grid.height, grid.width)});
  std::int64_t in_layers = 0;
  for (VitLayer& each : model.layers) in_layers += parameter_count(each);
  info.rows.push_back({"layers", c.layers, in_layers, c.layers * layer});
  add_head(info, model.norm, model.classifier);
  if (c.pooler > 0)
    info.rows.push_back(
        {"pooler", 1, parameter_count(model.pooler), linear_macs(1, c.width, c.pooler)});
  info.peak_activations = transformer_peak(tokens, c.width, c.heads, c.mlp);
  return info;
}

VisionModel vision_model(LoadedVit vit) {
  const auto held = std::make_shared<LoadedVit>(std::move(vit));
  VisionModel model;
  model.run = [held](const tensor::Tensor& pixels, const Observer& observe) {
    const VitOutput out = held->model(pixels, observe);
    if (out.logits.defined()) return tensor::nn::StateDict{{"logits", out.logits}};
    tensor::nn::StateDict features{{"last_hidden_state", out.last_hidden_state}};
    if (out.pooler_output.defined()) features.emplace("pooler_output", out.pooler_output);
    return features;
  };
  model.parameters = [held] { return tensor::nn::parameters(held->model); };
  model.info = [held](const std::string& name) {
    return describe(name, held->model, held->config);
  };
  model.channels = held->config.channels;
  model.image = held->config.image;
  model.steps = held->config.layers + 1;
  model.preparation = preparation(held->preprocessing);
  model.labels = held->labels;
  model.scores = held->scores;
  return model;
}

}  // namespace models::vit

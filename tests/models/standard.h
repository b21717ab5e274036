// The nine standard models with random weights, at sizes that tests can afford: ViT at its own;
// SETR at half its edge, a quarter of its patches; DETR, which takes any size, at a fifth.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/common/forward.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"

namespace standard {

struct Case {
  std::string name;
  std::int64_t height, width;
  std::int64_t encoder_layers = -1;  // DETR's
  bool whole = false;                // compared with the eager run as well
};

/// A model behind the function that its program runs.
struct Model {
  std::vector<tensor::nn::Parameter> parameters;
  models::Forward run;
};

template <class Net>
Model model_of(std::shared_ptr<Net> net) {
  return {tensor::nn::parameters(*net),
          [net](const tensor::nn::StateDict& in) -> tensor::nn::StateDict {
            const auto out = (*net)(in.at("pixel_values"));
            if constexpr (std::is_same_v<Net, models::detr::Detr>)
              return {{"logits", out.logits}, {"pred_boxes", out.pred_boxes}};
            else if constexpr (std::is_same_v<Net, models::vit::Vit>)
              return {{"logits", out.logits}};
            else
              return {{"logits", out}};
          }};
}

inline Model model(const Case& c) {
  if (c.name.starts_with("vit"))
    return model_of(std::make_shared<models::vit::Vit>(
        models::vit::Vit::sized(models::vit::standard_config(c.name))));
  if (c.name.starts_with("setr"))
    return model_of(std::make_shared<models::setr::Setr>(
        models::setr::Setr::sized(models::setr::SetrConfig::standard(c.name, c.height))));
  models::detr::DetrConfig config;
  config.encoder_layers = c.encoder_layers;
  return model_of(std::make_shared<models::detr::Detr>(models::detr::Detr::sized(config)));
}

inline std::vector<Case> cases() {
  return {{"vit-base-patch16-224", 224, 224, -1, true},
          {"vit-large-patch16-224", 224, 224},
          {"vit-huge-patch14-224", 224, 224},
          {"setr-naive-base", 192, 192, -1, true},
          {"setr-naive", 192, 192},
          {"setr-pup", 192, 192},
          {"setr-mla", 192, 192},
          {"detr-resnet-50", 160, 256, 3, true},
          {"detr-resnet-50", 160, 256, 6},
          {"detr-resnet-50", 160, 256, 12}};
}

/// For the name of a test.
inline std::string word(const Case& c) {
  std::string name = c.name;
  if (c.encoder_layers >= 0) name += "-e" + std::to_string(c.encoder_layers);
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace standard

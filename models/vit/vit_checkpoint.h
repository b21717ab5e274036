// ViT checkpoints: Hugging Face's names (with any prefix, and the newer ones) and timm's.
#pragma once

#include <string>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/vit/vit.h"
#include "models/vit/vit_settings.h"

namespace models::vit {

/// A model with what its folder says about images and classes.
struct LoadedVit {
  VitConfig config;
  Vit model;
  std::vector<std::string> labels;  // empty without a classifier
  Preprocessing preprocessing;
  Scores scores = Scores::softmax;
  bool timm = false;
};

/// The sizes come from the tensors and are checked against config.json, which gives the rest.
/// `resize_position` lets images have other sizes than the model was trained with.
LoadedVit load_vit(const Checkpoint& checkpoint, bool resize_position = false);

}  // namespace models::vit

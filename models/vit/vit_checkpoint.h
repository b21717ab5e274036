// ViT checkpoints: Hugging Face's names (with any prefix, and the newer ones) and timm's.
#pragma once

#include <string>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/vit/vit.h"

namespace models::vit {

/// A model with what its folder says about images and classes.
struct LoadedVit {
  VitConfig config;
  Vit model;
  std::vector<std::string> labels;  // empty without a classifier
  Preprocessing preprocessing;
  bool sigmoid = false;  // independent classes, instead of a softmax over them
  bool timm = false;
};

/// The sizes come from the tensors and are checked against config.json, which gives the rest.
/// `resize_position` lets images have other sizes than the model was trained with.
LoadedVit load_vit(const Checkpoint& checkpoint, bool resize_position = false);

}  // namespace models::vit

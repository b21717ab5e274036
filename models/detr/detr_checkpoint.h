// DETR from a checkpoint folder: what its tensors are called, and the sizes they imply.
#pragma once

#include <string>

#include "models/common/checkpoint.h"
#include "models/detr/detector.h"

namespace models::detr {

/// The public ways to name DETR's tensors.
enum class Names {
  hub,      // facebook/detr-resnet-50 on the Hugging Face hub, backbone named as in torchvision
  no_timm,  // the same with the backbone of transformers' own ResNet
  original  // github.com/facebookresearch/detr, attention inputs fused
};

/// Where the parameter `path` of a Detr stands in a checkpoint.
tensor::nn::Source checkpoint_name(const std::string& path, Names names);

/// Opens a folder.
Checkpoint open_detr(const std::string& folder, Takes takes = Takes::images);
/// Loads a folder with any of these names, with or without the "detr." of a panoptic model. Sizes
/// come from the tensors, heads and DC5 from config.json. UserError on anything that does not fit.
Detr load_detr(const std::string& folder);
/// The same from an opened folder.
Detr load_detr(const Checkpoint& checkpoint);
/// The model as the program takes it.
Detector load_detector(const Checkpoint& checkpoint);

}  // namespace models::detr

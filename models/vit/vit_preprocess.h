// How ViT's public implementations prepare an image.
#pragma once

#include "models/common/processors.h"

namespace models::vit {

/// The classes of transformers that prepare images for a classifier as `preprocess` does, first
/// ViTImageProcessor with the size of a model that takes `image`.
std::vector<ProcessorClass> huggingface_processors(Size image);
/// What the first of them does.
Preprocessing huggingface_preprocessing(Size image);

/// timm's evaluation transform by its "pretrained_cfg": resize the short side to image / crop_pct,
/// cut out the middle.
Preprocessing timm_preprocessing(const tensor::Json& pretrained_cfg, Size image);

}  // namespace models::vit

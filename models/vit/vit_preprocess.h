// How ViT's public implementations prepare an image.
#pragma once

#include "models/common/preprocess.h"

namespace models::vit {

/// The defaults of Hugging Face's ViTImageProcessor for a model that takes `image`:
/// preprocessor_config.json changes them.
Preprocessing huggingface_preprocessing(Size image);

/// timm's evaluation transform by its "pretrained_cfg": resize the short side to image / crop_pct,
/// cut out the middle.
Preprocessing timm_preprocessing(const tensor::Json& pretrained_cfg, Size image);

}  // namespace models::vit

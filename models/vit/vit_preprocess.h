// How ViT's public implementations prepare an image: transformers', and timm.
#pragma once

#include "models/common/huggingface.h"

namespace models::vit {

using models::huggingface_preprocessing;
using models::huggingface_processors;

/// timm's evaluation transform by its "pretrained_cfg": resize the short side to image / crop_pct,
/// cut out the middle.
Preprocessing timm_preprocessing(const tensor::Json& pretrained_cfg, Size image);

}  // namespace models::vit

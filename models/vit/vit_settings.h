// What a ViT's settings mean: the keys that are known, the heads of timm's architectures, and what
// the outputs stand for.
#pragma once

#include "models/common/labels.h"
#include "models/common/settings.h"

namespace models::vit {

using models::read_scores;
using models::Scores;

/// UserError unless "model_type" is absent or that of a plain ViT.
void require_vit(const tensor::Json& config);

/// UserError on a key of config.json that may ask for what is not computed.
void check_huggingface(const tensor::Json& config, std::int64_t features_of_a_head);
/// The same, and of its "model_args" and "pretrained_cfg".
void check_timm(const tensor::Json& config);

/// The heads that timm gives a plain ViT or DeiT of this name, 0 if it is none, or not so wide.
std::int64_t timm_heads(std::string_view architecture, std::int64_t width);

}  // namespace models::vit

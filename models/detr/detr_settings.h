// What DETR's settings mean: the keys that are known.
#pragma once

#include "models/common/settings.h"

namespace models::detr {

/// UserError unless "model_type" is absent or DETR's.
void require_detr(const tensor::Json& config);
/// UserError on a key of config.json, or of what it says of the backbone, that may ask for what is
/// not computed.
void check_detr(const tensor::Json& config);

}  // namespace models::detr

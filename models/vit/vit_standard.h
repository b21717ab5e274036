// The standard sizes of ViT, and what a ViT of any size costs.
#pragma once

#include <string>
#include <vector>

#include "models/common/info.h"
#include "models/common/vision_model.h"
#include "models/vit/vit_checkpoint.h"

namespace models::vit {

/// "vit-base-patch16-224", "vit-large-patch16-224", "vit-huge-patch14-224".
std::vector<std::string> standard_names();
/// One of them, with 1000 classes. UserError on another name.
VitConfig standard_config(const std::string& name);

/// Parameters and multiply-adds by part.
Info describe(const std::string& name, Vit& model, const VitConfig& config);

/// The model as the programs take it.
VisionModel vision_model(LoadedVit vit);

}  // namespace models::vit

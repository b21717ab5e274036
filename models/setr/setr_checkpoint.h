// SETR from a checkpoint folder: what its tensors are called, and the sizes they imply.
#pragma once

#include <string>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/draw.h"
#include "models/setr/setr.h"

namespace models::setr {

/// Where the parameter `path` of a Setr with this flavour and head stands in a checkpoint.
tensor::nn::Source checkpoint_name(const std::string& path, const SetrConfig& config);

/// Loads the tensors of either implementation; flavour, head and sizes come from the tensors, the
/// attention heads and the tapped layers from config.json where they are not those of a published
/// model. UserError on anything that does not fit.
Setr load_setr(const Checkpoint& checkpoint);

/// open_checkpoint, which also says what a config.json must hold if there is none.
Checkpoint open_setr(const std::string& folder, Takes takes = Takes::images);

/// The colour of every class: config's "palette" [[r, g, b], ...], otherwise the defaults.
std::vector<Color> read_palette(const tensor::Json& config, std::int64_t classes);
/// The name of every class: as read_labels, with the data sets' names for defaults.
std::vector<std::string> read_class_names(const tensor::Json& config, std::int64_t classes);

}  // namespace models::setr

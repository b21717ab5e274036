// Class names.
#pragma once

#include <string>
#include <vector>

#include "tensor/json.h"

namespace models {

/// The names of classes 0 to classes - 1: config's "id2label" {"0": "cat", ...} or "label_names"
/// ["cat", ...], which must fit, otherwise "class 0", "class 1" ...
std::vector<std::string> read_labels(const tensor::Json& config, std::int64_t classes);

}  // namespace models

// --calibrate: the scales of activations in eight bits, from pictures.
#pragma once

#include <map>
#include <string>

#include "models/common/cli.h"

namespace models {

/// The scales for the pictures that --calibrate names, of a model that has its weights. UserError
/// where one of them cannot be read.
std::map<std::string, float> calibrated(const Program& program, const Options& options,
                                        tensor::CompileOptions how);

}  // namespace models

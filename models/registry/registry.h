// Which model types the programs take, by "model_type" of config.json, and what loads them: the one
// place where a model is added.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/common/vision_model.h"

namespace models {

/// What config.json says, "timm_wrapper" for timm's folders, which have an architecture in place of
/// a type, and nothing where it does not say.
std::string model_type_of(const tensor::Json& config);

/// The types that a program ("vit", "detr", "setr", "depth") takes.
std::vector<std::string> model_types(std::string_view program);

/// The program that takes this folder's type; UserError, by config.json, on a type of no program.
std::string program_of(const tensor::Json& config);

/// UserError unless a folder's type is one that the program takes, or is not said.
void require_program(const tensor::Json& config, std::string_view program);

/// The model of a folder for a program; of the program's own type where config.json does not say.
/// UserError on a type that it does not take.
VisionModel load_model(const Checkpoint& checkpoint, std::string_view program,
                       const LoadSettings& settings = {});

}  // namespace models

// The program that a reference checkpoint is for.
#pragma once

#include <memory>
#include <string>

#include "models/depth/depth_program.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"

namespace golden {

/// The program of a folder by its name: "vit_hf", "detr_original", "segformer". What is no other
/// program's is vit's.
inline std::unique_ptr<models::Program> program_of(const std::string& name) {
  if (name.starts_with("depth") || name.starts_with("dpt"))
    return std::make_unique<models::depth::DepthProgram>();
  if (name.starts_with("detr") || name.starts_with("rt_detr"))
    return std::make_unique<models::detr::DetrProgram>();
  if (name.starts_with("setr") || name.starts_with("segformer"))
    return std::make_unique<models::setr::SetrProgram>();
  return models::vit::make_program();
}

}  // namespace golden

// The table of model types.
#include "models/registry/registry.h"

#include <algorithm>

#include "models/clip/clip.h"
#include "models/common/text.h"
#include "models/convnext/convnext.h"
#include "models/dinov2/dinov2.h"
#include "models/dinov3/dinov3.h"
#include "models/dpt/dpt.h"
#include "models/sam/sam.h"
#include "models/segformer/segformer.h"
#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_info.h"
#include "models/swin/swin.h"
#include "models/vit/vit_standard.h"

namespace models {

using tensor::Json;

namespace {

VisionModel load_vit(const Checkpoint& checkpoint, const LoadSettings& settings) {
  return vit::vision_model(vit::load_vit(checkpoint, settings.any_size));
}

VisionModel load_setr(const Checkpoint& checkpoint, const LoadSettings& settings) {
  setr::Setr net = setr::load_setr(checkpoint);
  const std::int64_t classes = net.config.classes, image = net.config.image_size;
  return setr::vision_model(std::move(net), setr::read_class_names(checkpoint.config, classes),
                            setr::read_palette(checkpoint.config, classes),
                            checkpoint.preprocessor
                                ? setr::read_preprocessing(*checkpoint.preprocessor, image)
                                : setr::default_preprocessing(image),
                            settings.scale);
}

struct ModelType {
  std::string_view name, program;
  VisionModel (*load)(const Checkpoint& checkpoint, const LoadSettings& settings);
};

/// The first of a program is what a folder holds that does not say. Masked Siamese networks are
/// ViTs that were trained in another way. The detr program opens its folders itself.
constexpr ModelType kTypes[] = {{"vit", "vit", load_vit},
                                {"vit_msn", "vit", load_vit},
                                {"timm_wrapper", "vit", load_vit},
                                {"convnext", "vit", convnext::load_convnext},
                                {"convnextv2", "vit", convnext::load_convnext},
                                {"swin", "vit", swin::load_swin},
                                {"dinov2", "vit", dinov2::load_dinov2},
                                {"dinov2_with_registers", "vit", dinov2::load_dinov2},
                                {"dinov3_vit", "vit", dinov3::load_dinov3},
                                {"clip", "vit", clip::load_clip},
                                {"clip_vision_model", "vit", clip::load_clip},
                                {"siglip", "vit", clip::load_clip},
                                {"siglip_vision_model", "vit", clip::load_clip},
                                {"sam", "vit", sam::load_sam},
                                {"sam_vision_model", "vit", sam::load_sam},
                                {"detr", "detr", nullptr},
                                {"rt_detr", "detr", nullptr},
                                {"rt_detr_v2", "detr", nullptr},
                                {"setr", "setr", load_setr},
                                {"segformer", "setr", segformer::load_segformer},
                                {"depth_anything", "depth", dpt::load_depth_anything}};

/// "vit takes vit, convnext; detr takes detr".
std::string all_types() {
  std::string text;
  for (const char* program : {"vit", "detr", "setr", "depth"})
    text += (text.empty() ? "" : "; ") + std::string(program) + " takes " +
            joined(model_types(program), ", ");
  return text;
}

/// Where the type stands, for messages.
std::string where(const Json& config) {
  return config.has("model_type") ? config["model_type"].path() : config.path();
}

const ModelType& type_of(const Json& config, std::string_view type) {
  const auto found = std::ranges::find(kTypes, type, &ModelType::name);
  if (found != std::end(kTypes)) return *found;
  tensor::fail(where(config),
               config.has("model_type") ? "is " + json_text(type) + ", which no program takes: "
                                        : "has no \"model_type\": ",
               all_types());
}

}  // namespace

std::string model_type_of(const Json& config) {
  return config.text("model_type", config.has("architecture") ? "timm_wrapper" : "");
}

std::vector<std::string> model_types(std::string_view program) {
  std::vector<std::string> names;
  for (const ModelType& type : kTypes)
    if (type.program == program) names.emplace_back(type.name);
  return names;
}

std::string program_of(const Json& config) {
  return std::string(type_of(config, model_type_of(config)).program);
}

void require_program(const Json& config, std::string_view program) {
  const std::string given = model_type_of(config);
  if (given.empty()) return;
  const std::string_view takes = type_of(config, given).program;
  if (takes != program)
    tensor::fail(where(config), "is ", json_text(given), ", which ", takes, " takes, not ", program,
                 ": ", all_types());
}

VisionModel load_model(const Checkpoint& checkpoint, std::string_view program,
                       const LoadSettings& settings) {
  const Json& config = checkpoint.config;
  require_program(config, program);
  const std::string given = model_type_of(config);
  const ModelType& type = given.empty() ? *std::ranges::find(kTypes, program, &ModelType::program)
                                        : type_of(config, given);
  return type.load(checkpoint, settings);
}

}  // namespace models

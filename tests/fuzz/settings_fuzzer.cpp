// What a folder's config.json and preprocessor_config.json may say, to every reader: the bytes
// stand for both files. The tensors are good ones.
#include "models/detr/detr_processing.h"
#include "models/detr/detr_settings.h"
#include "models/registry/registry.h"
#include "models/rt_detr/rt_detr.h"
#include "models/setr/setr_checkpoint.h"
#include "models/setr/setr_processing.h"
#include "models/vit/vit_checkpoint.h"
#include "models/vit/vit_preprocess.h"
#include "tests/fuzz/targets.h"
#include "tests/models/sine.h"

namespace {

using tensor::Json;
using tensor::fuzzing::allow_user_errors;

void read_everything(const Json& settings) {
  static const auto vit = sine::huggingface_vit(16, 3).tensors;
  static const auto timm = sine::timm_vit("test_vit", 64, 192).tensors;
  static const auto setr = sine::mmseg_setr().tensors;
  constexpr models::Size kImage{480, 640};
  for (const auto& tensors : {vit, timm})
    allow_user_errors([&] { models::vit::load_vit({"f", settings, settings, tensors}); });
  allow_user_errors([&] { models::setr::load_setr({"f", settings, settings, setr}); });
  for (const char* program : {"vit", "setr", "depth"})
    allow_user_errors([&] { models::load_model({"f", settings, settings, vit}, program); });
  allow_user_errors([&] { models::rt_detr::load_rt_detr({"f", settings, settings, vit}); });
  allow_user_errors([&] { models::setr::read_palette(settings, 3); });
  allow_user_errors([&] { models::setr::read_class_names(settings, 3); });
  allow_user_errors([&] { models::detr::check_detr(settings); });
  allow_user_errors([&] {
    const auto rule = models::read_preprocessing(settings, models::detr::processors());
    models::check_resized(kImage, models::preprocessed_size(kImage, rule));
  });
  allow_user_errors([&] {
    const auto rule =
        models::read_preprocessing(settings, models::vit::huggingface_processors({16, 16}));
    models::check_resized(kImage, models::preprocessed_size(kImage, rule));
  });
  allow_user_errors([&] {
    models::setr::preprocessed_size(kImage, models::setr::read_preprocessing(settings, 16));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  allow_user_errors([&] {
    const Json settings = Json::parse(text, "f");
    if (settings.is_object()) read_everything(settings);
  });
  return 0;
}

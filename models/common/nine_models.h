// The nine models of the GTCO paper (Table I): what is measured, and planned in tests.
#pragma once

#include <string_view>

#include "models/common/preprocess.h"

namespace models {

struct PaperModel {
  std::string_view name;
  Size image;
  int encoder_layers = 0;  // of DETR
};

inline constexpr PaperModel kNineModels[] = {{"vit-base-patch16-224", {224, 224}},
                                             {"vit-large-patch16-224", {224, 224}},
                                             {"vit-huge-patch14-224", {224, 224}},
                                             {"detr-resnet-50-e3", {800, 1333}, 3},
                                             {"detr-resnet-50-e6", {800, 1333}, 6},
                                             {"detr-resnet-50-e12", {800, 1333}, 12},
                                             {"setr-naive-base", {384, 384}},
                                             {"setr-naive", {384, 384}},
                                             {"setr-pup", {384, 384}}};

}  // namespace models

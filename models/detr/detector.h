// Detector: a model that finds objects in pictures behind one interface, whatever its architecture,
// as the program runs it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/common/info.h"
#include "models/common/observer.h"
#include "models/common/preprocess.h"
#include "models/detr/detr.h"
#include "tensor/nn.h"

namespace models::detr {

struct Detector {
  /// pixel_values [B, channels, H, W] and a mask [B, H, W], undefined where there is none, to
  /// "logits" [B, queries, classes], "pred_boxes" [B, queries, 4] and features. It can be traced.
  std::function<tensor::nn::StateDict(const tensor::Tensor& pixels, const tensor::Tensor& mask,
                                      const Observer& observe)>
      run;
  std::function<std::vector<tensor::nn::Parameter>()> parameters;
  std::function<Info(const std::string& name, Size image)> info;
  std::int64_t channels = 3, queries = 100;
  std::int64_t steps = 1;   // how often `run` calls its observer
  bool takes_mask = true;   // which says where padding is
  bool is_focal = false;    // logits: of each class by itself, in place of "no object" as the last
  Size picture{800, 1333};  // an image for which `info` counts, before it is prepared
  std::vector<std::string> labels = {};
  Preprocessing preprocessing = {};

  /// How many logits a query has.
  std::int64_t classes() const { return std::ssize(labels) + (is_focal ? 0 : 1); }
};

/// With labels "class 0", "class 1" ...
Detector detector(Detr net);

}  // namespace models::detr

// DETR as a detector.
#include "models/detr/detector.h"

#include "models/common/labels.h"
#include "models/detr/detr_info.h"
#include "models/detr/detr_processing.h"

namespace models::detr {

using tensor::Tensor;

Detector detector(Detr net) {
  const auto held = std::make_shared<Detr>(std::move(net));
  Detector made;
  made.run = [held](const Tensor& pixels, const Tensor& mask,
                    const Observer& observe) -> tensor::nn::StateDict {
    const DetrOutput out = (*held)(pixels, mask, observe);
    return {{"logits", out.logits},
            {"pred_boxes", out.pred_boxes},
            {"encoder_last_hidden_state", out.encoder_last_hidden_state},
            {"last_hidden_state", out.last_hidden_state}};
  };
  made.parameters = [held] { return tensor::nn::parameters(*held); };
  made.info = [held](const std::string& name, Size image) { return describe(*held, name, image); };
  made.channels = held->backbone.stem.conv.weight.shape(1);
  made.queries = held->queries.weight.shape(0);
  made.steps = std::ssize(held->backbone.stages) + std::ssize(held->encoder) + 1 +
               std::ssize(held->decoder) + 1;
  made.labels =
      read_labels(tensor::Json::parse("{}", "config.json"), held->class_head.weight.shape(0) - 1);
  made.preprocessing = default_preprocessing();
  return made;
}

}  // namespace models::detr

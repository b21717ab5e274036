// The nine models of the GTCO paper (Table I) as laid-out graphs, made without running them. In f32
// their weights take no memory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/common/nine_models.h"
#include "models/detr/detr.h"
#include "models/setr/setr.h"
#include "models/vit/vit_standard.h"
#include "src/trace/layout.h"
#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace nine {

namespace tn = tensor;

/// As compile() has it on a GPU of this capability.
inline tn::Precision on_gpu(tn::DType dtype, int capability, bool narrow_residuals = false) {
  return {.dtype = dtype,
          .narrow_images = true,
          .narrow_residuals = narrow_residuals,
          .folds_norms = capability == 90};
}

template <class Model>
tn::LaidOutGraph laid_out(
    Model model, const tn::Shape& pixels, const tn::Precision& precision,
    const std::function<std::vector<tn::Tensor>(const Model&, const tn::Tensor&)>& f) {
  // Every parameter is one number of its own, seen at every place.
  std::vector<std::pair<std::string, tn::Tensor>> names;
  double number = 0.5;
  for (const tn::nn::Parameter& p : tn::nn::parameters(model)) {
    *p.tensor = tn::broadcast_to(tn::full({}, number += 1e-4, tn::f32), p.tensor->shape());
    names.emplace_back(p.name, *p.tensor);
  }
  tn::Graph graph = tn::trace([&](const std::vector<tn::Tensor>& in) { return f(model, in[0]); },
                              {{pixels, tn::f32}}, names);
  for (const tn::Pass& pass : tn::passes_for(precision)) graph = pass.run(graph);
  return tn::lay_out(graph);
}

inline std::map<std::string, std::function<tn::LaidOutGraph()>> nine_models(
    const tn::Precision& precision = {}, std::int64_t batch = 1) {
  using models::detr::Detr;
  using models::setr::Setr;
  using models::vit::Vit;
  const auto vit = [=](const std::string& name, const tn::Shape& pixels) {
    return laid_out<Vit>(
        Vit::sized(models::vit::standard_config(name)), pixels, precision,
        [](const Vit& m, const tn::Tensor& x) -> std::vector<tn::Tensor> { return {m(x).logits}; });
  };
  const auto setr = [=](const std::string& name, const tn::Shape& pixels) {
    return laid_out<Setr>(
        Setr::sized(models::setr::SetrConfig::standard(name, pixels[2])), pixels, precision,
        [](const Setr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> { return {m(x)}; });
  };
  const auto detr = [=](int encoder_layers, const tn::Shape& pixels) {
    return laid_out<Detr>(Detr::sized({.encoder_layers = encoder_layers}), pixels, precision,
                          [](const Detr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> {
                            const auto out = m(x);
                            return {out.logits, out.pred_boxes};
                          });
  };
  std::map<std::string, std::function<tn::LaidOutGraph()>> all;
  for (const models::PaperModel& model : models::kNineModels)
    all[std::string(model.name)] = [=, name = std::string(model.name)] {
      const tn::Shape pixels{batch, 3, model.image.height, model.image.width};
      if (model.encoder_layers > 0) return detr(model.encoder_layers, pixels);
      return name.starts_with("vit") ? vit(name, pixels) : setr(name, pixels);
    };
  return all;
}

}  // namespace nine

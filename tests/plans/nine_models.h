// The nine models of the GTCO paper (Table I) as laid-out graphs, made without running them. In f32
// their weights take no memory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

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
  std::map<std::string, std::function<tn::LaidOutGraph()>> all;
  for (const std::string& name : models::vit::standard_names())
    all[name] = [=] {
      return laid_out<Vit>(Vit::sized(models::vit::standard_config(name)), {batch, 3, 224, 224},
                           precision,
                           [](const Vit& m, const tn::Tensor& x) -> std::vector<tn::Tensor> {
                             return {m(x).logits};
                           });
    };
  for (const std::string name : {"setr-naive-base", "setr-naive", "setr-pup"})
    all[name] = [=] {
      return laid_out<Setr>(
          Setr::sized(models::setr::SetrConfig::standard(name)), {batch, 3, 384, 384}, precision,
          [](const Setr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> { return {m(x)}; });
    };
  for (const int layers : {3, 6, 12})
    all["detr-resnet-50-e" + std::to_string(layers)] = [=] {
      models::detr::DetrConfig config;
      config.encoder_layers = layers;
      return laid_out<Detr>(Detr::sized(config), {batch, 3, 800, 1333}, precision,
                            [](const Detr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> {
                              const auto out = m(x);
                              return {out.logits, out.pred_boxes};
                            });
    };
  return all;
}

}  // namespace nine

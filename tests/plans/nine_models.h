// The nine models of the GTCO paper (Table I) as laid-out graphs, made without running them. In f32
// their weights take no memory. With `folds_norms` they are prepared as for a GPU of capability 90.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/detr/detr.h"
#include "models/setr/setr.h"
#include "models/vit/vit_standard.h"
#include "src/trace/layout.h"
#include "src/trace/passes/cast.h"
#include "src/trace/passes/cast_images.h"
#include "src/trace/passes/clean.h"
#include "src/trace/passes/fold_scale.h"
#include "src/trace/passes/simplify.h"
#include "src/trace/trace.h"
#include "tensor/tensor.h"

namespace nine {

namespace tn = tensor;

template <class Model>
tn::LaidOutGraph laid_out(
    Model model, const tn::Shape& pixels, tn::DType dtype,
    const std::function<std::vector<tn::Tensor>(const Model&, const tn::Tensor&)>& f,
    bool folds_norms = false) {
  // Every parameter is one number of its own, seen at every place.
  std::vector<std::pair<std::string, tn::Tensor>> names;
  double number = 0.5;
  for (const tn::nn::Parameter& p : tn::nn::parameters(model)) {
    *p.tensor = tn::broadcast_to(tn::full({}, number += 1e-4, tn::f32), p.tensor->shape());
    names.emplace_back(p.name, *p.tensor);
  }
  tn::Graph graph = tn::trace([&](const std::vector<tn::Tensor>& in) { return f(model, in[0]); },
                              {{pixels, tn::f32}}, names);
  graph = tn::fold_scale(tn::simplify(tn::fold_constants(graph)));
  if (dtype != tn::f32) graph = tn::cast_images(tn::cast_products(graph, dtype), dtype);
  if (dtype != tn::f32 && folds_norms) graph = tn::cast_norms(graph, dtype);
  return tn::lay_out(tn::eliminate_common_and_dead(graph));
}

inline std::map<std::string, std::function<tn::LaidOutGraph()>> nine_models(
    tn::DType dtype = tn::f32, std::int64_t batch = 1, bool folds_norms = false) {
  using models::detr::Detr;
  using models::setr::Setr;
  using models::vit::Vit;
  std::map<std::string, std::function<tn::LaidOutGraph()>> all;
  for (const std::string& name : models::vit::standard_names())
    all[name] = [=] {
      return laid_out<Vit>(
          Vit::sized(models::vit::standard_config(name)), {batch, 3, 224, 224}, dtype,
          [](const Vit& m, const tn::Tensor& x) -> std::vector<tn::Tensor> {
            return {m(x).logits};
          },
          folds_norms);
    };
  for (const std::string name : {"setr-naive-base", "setr-naive", "setr-pup"})
    all[name] = [=] {
      return laid_out<Setr>(
          Setr::sized(models::setr::SetrConfig::standard(name)), {batch, 3, 384, 384}, dtype,
          [](const Setr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> { return {m(x)}; },
          folds_norms);
    };
  for (const int layers : {3, 6, 12})
    all["detr-resnet-50-e" + std::to_string(layers)] = [=] {
      models::detr::DetrConfig config;
      config.encoder_layers = layers;
      return laid_out<Detr>(
          Detr::sized(config), {batch, 3, 800, 1333}, dtype,
          [](const Detr& m, const tn::Tensor& x) -> std::vector<tn::Tensor> {
            const auto out = m(x);
            return {out.logits, out.pred_boxes};
          },
          folds_norms);
    };
  return all;
}

}  // namespace nine

// The nine models (bench/nine_models.h) as laid-out graphs, made without running them, and what the
// programs run. In f32 their weights take no memory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/nine_models.h"
#include "models/detr/detr_program.h"
#include "models/setr/setr_program.h"
#include "models/vit/vit_program.h"
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

/// A function of a model with these parameters, as compile() has it before it is partitioned.
inline tn::LaidOutGraph laid_out(const std::vector<tn::nn::Parameter>& parameters,
                                 const tn::TensorFunction& f,
                                 const std::vector<tn::TensorType>& inputs,
                                 const tn::Precision& precision) {
  // Every parameter is one number of its own, seen at every place.
  std::vector<std::pair<std::string, tn::Tensor>> names;
  double number = 0.5;
  for (const tn::nn::Parameter& p : parameters) {
    *p.tensor = tn::broadcast_to(tn::full({}, number += 1e-4, tn::f32), p.tensor->shape());
    names.emplace_back(p.name, *p.tensor);
  }
  tn::Graph graph = tn::trace(f, inputs, names);
  for (const tn::Pass& pass : tn::passes_for(precision)) graph = pass.run(graph);
  return tn::lay_out(graph);
}

template <class Model>
tn::LaidOutGraph laid_out(
    Model model, const tn::Shape& pixels, const tn::Precision& precision,
    const std::function<std::vector<tn::Tensor>(const Model&, const tn::Tensor&)>& f) {
  return laid_out(
      tn::nn::parameters(model), [&](const std::vector<tn::Tensor>& in) { return f(model, in[0]); },
      {{pixels, tn::f32}}, precision);
}

/// What a program runs on a GPU for inputs of these names.
inline tn::LaidOutGraph laid_out(models::Program& program,
                                 const std::map<std::string, tn::TensorType>& inputs,
                                 const tn::Precision& precision) {
  std::vector<tn::TensorType> types;
  for (const auto& [name, type] : inputs) types.push_back(type);
  const auto f = [&](const std::vector<tn::Tensor>& in) {
    tn::nn::StateDict given;
    for (const auto& [name, type] : inputs) given.emplace(name, in[given.size()]);
    std::vector<tn::Tensor> results;
    for (const auto& [name, value] : program.run(given, {})) results.push_back(value);
    return results;
  };
  return laid_out(program.parameters(), f, types, precision);
}

/// One of them for images [N, 3, H, W].
inline tn::LaidOutGraph laid_out(const bench::Model& model, const tn::Shape& pixels,
                                 const tn::Precision& precision) {
  const bench::Network net = model.make();
  return laid_out(net.parameters, net.function, {{pixels, tn::f32}}, precision);
}

inline std::map<std::string, std::function<tn::LaidOutGraph()>> nine_models(
    const tn::Precision& precision = {}, std::int64_t batch = 1) {
  std::map<std::string, std::function<tn::LaidOutGraph()>> all;
  for (const bench::Model& model : bench::nine_models())
    all[model.name] = [=] {
      return laid_out(model, {batch, 3, model.image.height, model.image.width}, precision);
    };
  return all;
}

/// The programs' own graphs on a GPU, from levels to the answer, with small models: larger ones
/// begin and end alike.
inline std::map<std::string, std::function<tn::LaidOutGraph()>> programs(
    const tn::Precision& precision) {
  std::map<std::string, std::function<tn::LaidOutGraph()>> all;
  all["vit-base-patch16-224"] = [=] {
    const auto vit = models::vit::make_program();
    vit->make("vit-base-patch16-224");
    return laid_out(*vit, {{"levels", {{1, 224, 224, 3}, tn::u8}}}, precision);
  };
  // Without a mask: sines of positions, which one needs, keep what reduces large numbers in memory.
  all["detr-resnet-50"] = [=] {
    models::detr::DetrProgram detr;
    detr.make("detr-resnet-50");
    return laid_out(detr, {{"levels", {{1, 800, 1333, 3}, tn::u8}}}, precision);
  };
  for (const char* name : {"setr-naive-base", "setr-pup"})
    all[name] = [=] {
      models::setr::SetrProgram setr;
      setr.make(name);
      return laid_out(
          setr, {{"levels", {{1, 384, 384, 3}, tn::u8}}, {"sums", {{1, 19, 384, 384}, tn::f32}}},
          precision);
    };
  // A frame of Cityscapes.
  all["setr's choice of classes"] = [] {
    models::setr::SetrProgram setr;
    setr.make("setr-naive");
    return laid_out(setr,
                    {{"sums", {{1, 19, 1025, 2049}, tn::f32}},
                     {"counts", {{1, 1, 1025, 2049}, tn::f32}},
                     {"best", {{1024, 2048}, tn::f32}},
                     {"labels", {{1024, 2048}, tn::i32}},
                     {"first", {{}, tn::i32}}},
                    on_gpu(tn::f32, 75));
  };
  return all;
}

}  // namespace nine

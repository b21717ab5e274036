#include "bench/nine_models.h"

#include <memory>
#include <utility>

#include "models/detr/detr_info.h"
#include "models/setr/setr_info.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"

namespace bench {
namespace {

using models::Size;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

/// `info(net)` counts the work; `forward(net, pixels)` is what runs.
template <class Net, class Describe, class Forward>
Network network(Net sized, Describe describe, Forward forward) {
  const auto net = std::make_shared<Net>(std::move(sized));
  return {.function = [net, forward](const Tensors& in) -> Tensors { return forward(*net, in[0]); },
          .parameters = tensor::nn::parameters(*net),
          .macs = describe(*net).macs()};
}

PaperModel vit(const std::string& name) {
  const models::vit::VitConfig config = models::vit::standard_config(name);
  return {name, config.image, [=] {
            return network(
                models::vit::Vit::sized(config),
                [&](auto& net) { return models::vit::describe(name, net, config); },
                [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels).logits}; });
          }};
}

PaperModel detr(int encoder_layers) {
  const Size image{800, 1333};
  return {"detr-resnet-50-e" + std::to_string(encoder_layers), image, [=] {
            return network(
                models::detr::Detr::sized({.encoder_layers = encoder_layers}),
                [&](auto& net) { return models::detr::describe(net, "detr", image); },
                [](const auto& net, const Tensor& pixels) {
                  const models::detr::DetrOutput out = net(pixels);
                  return Tensors{out.logits, out.pred_boxes};
                });
          }};
}

PaperModel setr(const std::string& name) {
  const Size image{384, 384};
  return {name, image, [=] {
            return network(
                models::setr::Setr::sized(models::setr::SetrConfig::standard(name, image.height)),
                [&](auto& net) { return models::setr::describe(net, name, image); },
                [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels)}; });
          }};
}

Workload workload(const PaperModel& model, int batch) {
  constexpr std::uint64_t kSeed = 1;
  const Network net = model.make();
  tensor::nn::randomize(net.parameters, kSeed);
  Workload work{.function = net.function,
                .inputs = {tensor::Generator(kSeed).normal(
                    {batch, 3, model.image.height, model.image.width})},
                .flops = 2.0 * batch * static_cast<double>(net.macs)};
  for (const auto& [name, parameter] : net.parameters) work.weights.emplace_back(name, *parameter);
  return work;
}

}  // namespace

std::vector<PaperModel> nine_models() {
  return {vit("vit-base-patch16-224"),
          vit("vit-large-patch16-224"),
          vit("vit-huge-patch14-224"),
          detr(3),
          detr(6),
          detr(12),
          setr("setr-naive-base"),
          setr("setr-naive"),
          setr("setr-pup")};
}

std::vector<Case> nine_cases(int batch) {
  std::vector<Case> cases;
  for (const PaperModel& model : nine_models())
    cases.push_back({model.name, [=](tensor::DType) { return workload(model, batch); }, batch});
  return cases;
}

}  // namespace bench

#include "bench/nine_models.h"

#include "models/detr/detr_info.h"
#include "models/setr/setr_info.h"
#include "models/vit/vit_standard.h"

namespace bench {
namespace {

using models::Size;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

Model vit(const std::string& name) {
  const models::vit::VitConfig config = models::vit::standard_config(name);
  return {name, config.image, [=] {
            return network(
                models::vit::Vit::sized(config),
                [&](auto& net) { return models::vit::describe(name, net, config).macs(); },
                [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels).logits}; });
          }};
}

Model detr(int encoder_layers) {
  const Size image{800, 1333};
  return {"detr-resnet-50-e" + std::to_string(encoder_layers), image, [=] {
            return network(
                models::detr::Detr::sized({.encoder_layers = encoder_layers}),
                [&](auto& net) { return models::detr::describe(net, "detr", image).macs(); },
                [](const auto& net, const Tensor& pixels) {
                  const models::detr::DetrOutput out = net(pixels);
                  return Tensors{out.logits, out.pred_boxes};
                });
          }};
}

Model setr(const std::string& name) {
  const Size image{384, 384};
  return {name, image, [=] {
            return network(
                models::setr::Setr::sized(models::setr::SetrConfig::standard(name, image.height)),
                [&](auto& net) { return models::setr::describe(net, name, image).macs(); },
                [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels)}; });
          }};
}

}  // namespace

std::vector<Model> nine_models() {
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

}  // namespace bench

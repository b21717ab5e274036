#include "bench/models.h"

#include <memory>

#include "models/common/nine_models.h"
#include "models/detr/detr_info.h"
#include "models/setr/setr_info.h"
#include "models/vit/vit_standard.h"
#include "tensor/creation.h"

namespace bench {
namespace {

using models::Size;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

constexpr std::uint64_t kSeed = 1;

/// `info(net)` counts the work; `forward(net, pixels)` is what is timed.
template <class Net, class Describe, class Forward>
Workload workload(Net sized, Size image, int batch, Describe describe, Forward forward) {
  const auto net = std::make_shared<Net>(std::move(sized));
  tensor::nn::randomize(*net, kSeed);
  Workload work{
      .function = [net, forward](const Tensors& in) -> Tensors { return forward(*net, in[0]); },
      .inputs = {tensor::Generator(kSeed).normal({batch, 3, image.height, image.width})},
      .flops = 2.0 * batch * static_cast<double>(describe(*net).macs())};
  const auto state = tensor::nn::state_dict(*net);
  work.weights.assign(state.begin(), state.end());
  return work;
}

Workload vit(const std::string& name, Size image, int batch) {
  const models::vit::VitConfig config = models::vit::standard_config(name);
  return workload(
      models::vit::Vit::sized(config), image, batch,
      [&](auto& net) { return models::vit::describe(name, net, config); },
      [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels).logits}; });
}

Workload detr(int encoder_layers, Size image, int batch) {
  return workload(
      models::detr::Detr::sized({.encoder_layers = encoder_layers}), image, batch,
      [&](auto& net) { return models::detr::describe(net, "detr", image); },
      [](const auto& net, const Tensor& pixels) {
        const models::detr::DetrOutput out = net(pixels);
        return Tensors{out.logits, out.pred_boxes};
      });
}

Workload setr(const std::string& name, Size image, int batch) {
  return workload(
      models::setr::Setr::sized(models::setr::SetrConfig::standard(name, image.height)), image,
      batch, [&](auto& net) { return models::setr::describe(net, name, image); },
      [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels)}; });
}

}  // namespace

std::vector<Case> nine_models(int batch) {
  std::vector<Case> cases;
  for (const auto& [view, image, encoder_layers] : models::kNineModels) {
    const auto make = [name = std::string(view), image = image, layers = encoder_layers, batch] {
      if (layers > 0) return detr(layers, image, batch);
      return name.starts_with("vit") ? vit(name, image, batch) : setr(name, image, batch);
    };
    cases.push_back({std::string(view), [make](tensor::DType) { return make(); }, batch});
  }
  return cases;
}

}  // namespace bench

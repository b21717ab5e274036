#include "bench/all_models.h"

#include "bench/mobilenet_v3.h"
#include "bench/nine_models.h"
#include "bench/rope_vit.h"
#include "bench/unet.h"
#include "models/clip/clip.h"
#include "models/convnext/convnext.h"
#include "models/dinov2/dinov2.h"
#include "models/dinov3/dinov3.h"
#include "models/dpt/dpt.h"
#include "models/rt_detr/rt_detr.h"
#include "models/sam/sam.h"
#include "models/segformer/segformer.h"
#include "models/swin/swin.h"

namespace bench {
namespace {

using models::Size;
using tensor::Tensor;
using Tensors = std::vector<Tensor>;

constexpr Size kImageNet{224, 224};

/// Of the folder models: `make()` gives one whose outputs have names, of which those wanted run.
template <class Make, class Macs>
Model named(const std::string& name, Size image, const std::vector<std::string>& outputs, Make make,
            Macs macs) {
  return {name, image, [=] {
            return network(make(), macs, [outputs](const auto& net, const Tensor& pixels) {
              const tensor::nn::StateDict found = net(pixels, {});
              Tensors wanted;
              for (const std::string& output : outputs) wanted.push_back(found.at(output));
              return wanted;
            });
          }};
}

template <class Make>
Model named(const std::string& name, Size image, const std::vector<std::string>& outputs,
            Make make) {
  return named(name, image, outputs, make, [=](const auto& net) {
    auto counted = net;
    if constexpr (requires { counted.image = image; }) counted.image = image;
    return describe(name, counted).macs();
  });
}

/// Written for these programs: `make()` gives one with a single output.
template <class Make>
Model plain(const std::string& name, Size image, Make make) {
  return {name, image, [=] {
            return network(
                make(), [=](const auto& net) { return macs(net, image); },
                [](const auto& net, const Tensor& pixels) { return Tensors{net(pixels)}; });
          }};
}

Model convnext(const std::string& name, bool is_v2) {
  const models::convnext::ConvNextConfig config{.is_v2 = is_v2, .layer_scale = !is_v2};
  return named(name, kImageNet, {"logits"},
               [=] { return models::convnext::ConvNext::sized(config); });
}

/// The position embedding is for 518 x 518, as in the weights; pictures are smaller.
Model dinov2(const std::string& name, const models::dinov2::Dinov2Config& config) {
  return named(name, kImageNet, {"last_hidden_state", "pooler_output"},
               [=] { return models::dinov2::Dinov2::sized(config); });
}

Model clip(const std::string& name, const models::clip::ClipConfig& config,
           const std::string& output) {
  return named(name, config.image, {"last_hidden_state", output},
               [=] { return models::clip::ClipTower::sized(config); });
}

Model rt_detr() {
  const Size image{640, 640};
  return named(
      "rtdetr-r50vd", image, {"logits", "pred_boxes"},
      [config = models::rt_detr::RtDetrConfig()] { return models::rt_detr::RtDetr::sized(config); },
      [=](auto& net) { return describe(net, "rtdetr-r50vd", image).macs(); });
}

std::vector<Model> classifiers() {
  return {convnext("convnext-tiny-224", false), convnext("convnextv2-tiny-1k-224", true),
          named("swin-tiny-patch4-window7-224", kImageNet, {"logits"},
                [] { return models::swin::Swin::sized({}); }),
          plain("mobilenet-v3-large", kImageNet, MobileNetV3::large)};
}

std::vector<Model> feature_makers() {
  return {dinov2("dinov2-with-registers-small",
                 {.width = 384, .heads = 6, .mlp = 1536, .registers = 4}),
          dinov2("dinov2-base", {}),
          named("dinov3-vits16", kImageNet, {"last_hidden_state", "pooler_output"},
                [] { return models::dinov3::Dinov3::sized({.registers = 4}); }),
          clip("clip-vit-base-patch32", {.projection = 512}, "image_embeds"),
          clip("siglip-base-patch16-224",
               {.is_siglip = true, .patch = 16, .eps = 1e-6, .activation = tensor::gelu_tanh},
               "pooler_output"),
          plain("rope-vit-base-patch16-224", kImageNet, RopeVit::base)};
}

std::vector<Model> image_makers() {
  return {named("segformer-b0-512", {512, 512}, {"logits"},
                [] { return models::segformer::Segformer::sized({}); }),
          rt_detr(),
          named("depth-anything-v2-small", {518, 518}, {"predicted_depth"},
                [] {
                  const auto config = models::dpt::DptConfig::standard("depth-anything-small");
                  return models::dpt::Dpt::sized(config);
                }),
          named("sam-vit-base", {1024, 1024}, {"last_hidden_state"},
                [] { return models::sam::Sam::sized({}); }),
          plain("unet-256", {256, 256}, Unet::standard)};
}

}  // namespace

std::vector<Model> all_models() {
  std::vector<Model> all = nine_models();
  for (const std::vector<Model>& more : {classifiers(), feature_makers(), image_makers()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace bench

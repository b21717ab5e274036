#include "bench/rope_vit.h"

#include <cmath>

#include "models/common/info.h"
#include "models/common/vision_model.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace bench {
namespace {

namespace nn = tensor::nn;
using tensor::Tensor;

constexpr double kEps = 1e-6, kTheta = 10000;

}  // namespace

Turn Turn::of(std::int64_t tokens, std::int64_t features) {
  const std::int64_t half = features / 2;
  const Tensor places = tensor::arange(tokens).astype(tensor::f32).reshape({tokens, 1});
  const Tensor halves = tensor::arange(half).astype(tensor::f32).reshape({1, half});
  const Tensor once =
      places * tensor::exp(halves * (-std::log(kTheta) / static_cast<double>(half)));
  const Tensor angles = tensor::concatenate({once, once}, 1);
  return {tensor::cos(angles), tensor::sin(angles)};
}

Tensor Turn::operator()(const Tensor& x) const {
  const std::vector<Tensor> halves = tensor::split(x, 2, -1);
  return x * cosines + tensor::concatenate({-halves[1], halves[0]}, -1) * sines;
}

RopeLayer RopeLayer::sized(std::int64_t width, std::int64_t heads, std::int64_t mlp) {
  return {.norm1 = nn::parameter({width}),
          .norm2 = nn::parameter({width}),
          .qkv = nn::Linear::sized(width, 3 * width, false),
          .output = nn::Linear::sized(width, width, false),
          .gate = nn::Linear::sized(width, mlp, false),
          .up = nn::Linear::sized(width, mlp, false),
          .down = nn::Linear::sized(mlp, width, false),
          .heads = heads};
}

Tensor RopeLayer::operator()(const Tensor& x, const Turn& turn) const {
  const std::int64_t batch = x.shape(0), tokens = x.shape(1), width = x.shape(2);
  const Tensor parts = qkv(tensor::rms_norm(x, norm1, kEps))
                           .reshape({batch, tokens, 3, heads, width / heads})
                           .transpose({2, 0, 3, 1, 4});
  const Tensor attended =
      tensor::scaled_dot_product_attention(turn(parts(0)), turn(parts(1)), parts(2));
  const Tensor y = x + output(attended.swapaxes(1, 2).reshape({batch, tokens, width}));
  const Tensor normed = tensor::rms_norm(y, norm2, kEps);
  return y + down(tensor::silu(gate(normed)) * up(normed));
}

RopeVit RopeVit::base() {
  constexpr std::int64_t kWidth = 768, kLayers = 12, kHeads = 12, kMlp = 2048, kPatch = 16;
  RopeVit net{.patches = nn::Conv2d::sized(3, kWidth, kPatch, {.stride = kPatch}),
              .layers = {},
              .norm = nn::parameter({kWidth})};
  for (std::int64_t i = 0; i < kLayers; ++i)
    net.layers.push_back(RopeLayer::sized(kWidth, kHeads, kMlp));
  return net;
}

Tensor RopeVit::operator()(const Tensor& pixels) const {
  Tensor x = models::as_tokens(patches(pixels));
  const Turn turn = Turn::of(x.shape(1), x.shape(2) / layers.front().heads);
  for (const RopeLayer& layer : layers) x = layer(x, turn);
  return tensor::mean(tensor::rms_norm(x, norm, kEps), 1);
}

std::int64_t macs(const RopeVit& net, models::Size image) {
  models::InfoRow row;
  const models::Size grid = add_conv(row, net.patches, image);
  const std::int64_t tokens = grid.height * grid.width;
  for (const RopeLayer& layer : net.layers)
    row.macs += models::transformer_macs(tokens, layer.norm1.size(), 3 * layer.up.weight.size());
  return row.macs;
}

}  // namespace bench

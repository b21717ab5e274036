// A model at its public configuration, with random weights: what the programs measure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench.h"
#include "models/common/preprocess.h"
#include "tensor/nn.h"

namespace bench {

/// A model whose parameters are not filled yet.
struct Network {
  tensor::TensorFunction function;                // of images [N, 3, H, W]
  std::vector<tensor::nn::Parameter> parameters;  // what the function reads, in its own place
  std::int64_t macs = 0;                          // multiply-adds of one image
};

struct Model {
  std::string name;
  models::Size image;
  std::function<Network()> make;
};

/// `macs(net)` counts the work; `forward(net, pixels)` is what runs.
template <class Net, class Macs, class Forward>
Network network(Net sized, Macs macs, Forward forward) {
  const auto net = std::make_shared<Net>(std::move(sized));
  return {.function = [net, forward](const std::vector<tensor::Tensor>& in)
              -> std::vector<tensor::Tensor> { return forward(*net, in[0]); },
          .parameters = tensor::nn::parameters(*net),
          .macs = macs(*net)};
}

/// The same with random weights and `batch` random images each.
std::vector<Case> cases(const std::vector<Model>& models, int batch);

}  // namespace bench

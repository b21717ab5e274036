// The nine models of the GTCO paper (Table I): what is measured here, and planned in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
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

struct PaperModel {
  std::string name;
  models::Size image;
  std::function<Network()> make;
};

/// vit-base-patch16-224 and its larger ones, detr-resnet-50-e3, -e6 and -e12, setr-naive-base,
/// setr-naive and setr-pup.
std::vector<PaperModel> nine_models();

/// The same with random weights and `batch` random images each.
std::vector<Case> nine_cases(int batch);

}  // namespace bench

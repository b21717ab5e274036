// ConvNeXt (Liu et al., 2022) and ConvNeXt V2 (Woo et al., 2023): stages of depthwise convolutions
// and MLPs of every pixel. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/vision_model.h"

namespace models::convnext {

struct ConvNextConfig {
  std::vector<std::int64_t> widths = {96, 192, 384, 768}, depths = {3, 3, 9, 3};  // of the stages
  std::int64_t channels = 3, patch = 4, classes = 1000;  // classes 0: no classifier
  bool is_v2 = false;  // a normalization of the responses in place of the layer scale
  bool layer_scale = true;
  double eps = 1e-12;  // of the last norm
  Activation activation = tensor::gelu;
};

/// x / mean(x) with x the norm of each feature over the image: features that compete (V2).
struct ResponseNorm {
  tensor::Tensor weight, bias;  // [1, 1, 1, features]
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("weight", weight), visit("bias", bias); }
};

/// Images stay [B, C, H, W]; norms and MLPs see pixels.
struct ConvNextLayer {
  tensor::nn::Conv2d dwconv;
  tensor::nn::LayerNorm layernorm;
  tensor::nn::Linear pwconv1, pwconv2;
  ResponseNorm grn;      // undefined in V1
  tensor::Tensor scale;  // [C], undefined where absent
  Activation activation = tensor::gelu;

  static ConvNextLayer sized(std::int64_t width, const ConvNextConfig& config);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("dwconv", dwconv), visit("layernorm", layernorm), visit("pwconv1", pwconv1);
    visit("grn", grn), visit("pwconv2", pwconv2), visit("layer_scale_parameter", scale);
  }
};

struct ConvNextStage {
  tensor::nn::LayerNorm norm;  // undefined in the first stage, as `downsample`
  tensor::nn::Conv2d downsample;
  std::vector<ConvNextLayer> layers;

  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("downsampling_layer.0", norm), visit("downsampling_layer.1", downsample);
    visit("layers", layers);
  }
};

struct ConvNext {
  tensor::nn::Conv2d patches;
  tensor::nn::LayerNorm patch_norm;
  std::vector<ConvNextStage> stages;
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear classifier;  // undefined where absent
  Size image{224, 224};           // that `describe` counts for

  static ConvNext sized(const ConvNextConfig& config);
  /// "logits", or "last_hidden_state" [B, C, h, w] and "pooler_output" [B, C]. `observe` sees
  /// "hidden_states.0", the patches, then every stage's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("embeddings.patch_embeddings", patches), visit("embeddings.layernorm", patch_norm);
    visit("encoder.stages", stages), visit("layernorm", norm), visit("classifier", classifier);
  }
};

Info describe(const std::string& name, ConvNext& model);

/// ConvNextForImageClassification or ConvNextModel, and the same of V2.
VisionModel load_convnext(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::convnext

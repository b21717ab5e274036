// DINOv2 (Oquab et al., 2023), with registers (Darcet et al., 2023) or without: a ViT that scales
// what its layers add. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/vision_model.h"
#include "models/vit/vit.h"

namespace models::dinov2 {

struct Dinov2Config {
  std::int64_t width = 768, layers = 12, heads = 12, mlp = 3072, channels = 3, patch = 14;
  std::int64_t registers = 0;
  std::int64_t classes = 0;  // 0: no classifier
  Size image{518, 518};      // that the position embedding is for
  double eps = 1e-6;
  bool qkv_bias = true;
  bool is_gated = false;  // SwiGLU in place of the MLP
  Activation activation = tensor::gelu;
};

struct Dinov2Layer {
  tensor::nn::LayerNorm norm1, norm2;
  tensor::nn::MultiheadAttention attention;
  tensor::Tensor scale1, scale2;  // [width]
  tensor::nn::Linear in, out;
  bool is_gated = false;  // then `in` makes gates and what they let pass
  Activation activation = tensor::gelu;

  static Dinov2Layer sized(const Dinov2Config& config);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("norm1", norm1), visit("norm2", norm2);
    visit("attention.attention.query", attention.query);
    visit("attention.attention.key", attention.key);
    visit("attention.attention.value", attention.value);
    visit("attention.output.dense", attention.output);
    visit("layer_scale1.lambda1", scale1), visit("layer_scale2.lambda1", scale2);
    visit(is_gated ? "mlp.weights_in" : "mlp.fc1", in);
    visit(is_gated ? "mlp.weights_out" : "mlp.fc2", out);
  }

 private:
  tensor::Tensor mlp(const tensor::Tensor& x) const;
};

struct Dinov2 {
  tensor::Tensor cls_token, registers;  // [1, 1, width], [1, registers, width] or undefined
  tensor::Tensor position;              // [1, 1 + patches, width]
  tensor::nn::Conv2d patches;
  std::vector<Dinov2Layer> layers;
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear classifier;  // undefined where absent
  Size image;

  static Dinov2 sized(const Dinov2Config& config);
  /// "logits" of the class token and the mean of the patches, or "last_hidden_state" and
  /// "pooler_output", its class token. `observe` sees "hidden_states.0", the embeddings, then every
  /// layer's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  /// The last layer's output, before the norm.
  tensor::Tensor encode(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("embeddings.cls_token", cls_token), visit("embeddings.register_tokens", registers);
    visit("embeddings.position_embeddings", position);
    visit("embeddings.patch_embeddings.projection", patches);
    visit("encoder.layer", layers), visit("layernorm", norm), visit("classifier", classifier);
  }

 private:
  tensor::Tensor embed(const tensor::Tensor& pixels) const;
};

Info describe(const std::string& name, Dinov2& model);

/// What config.json says; of a backbone, `checkpoint.config` is that part of it.
Dinov2Config read_config(const Checkpoint& checkpoint);

/// Dinov2Model or Dinov2ForImageClassification, and the same with registers.
VisionModel load_dinov2(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::dinov2

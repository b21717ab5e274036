// DINOv3's ViT (Simeoni et al., 2025): queries and keys are turned by where their patch lies, in
// place of a position embedding. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/vision_model.h"

namespace models::dinov3 {

struct Dinov3Config {
  std::int64_t width = 384, layers = 12, heads = 6, mlp = 1536, channels = 3, patch = 16;
  std::int64_t registers = 0;
  Size image{224, 224};
  double eps = 1e-5, theta = 100;
  bool query_bias = true, key_bias = false, value_bias = true, output_bias = true, mlp_bias = true;
  bool is_gated = false;
  Activation activation = tensor::gelu;
};

/// What turns the features of a head, f32 [tokens, features of a head] each.
struct Rotation {
  tensor::Tensor cosines, sines;
  /// The rotation of `before` tokens that stand nowhere, and of the patches of a grid.
  static Rotation of(std::int64_t before, Size grid, std::int64_t features, double theta);
  /// x [B, heads, tokens, features].
  tensor::Tensor operator()(const tensor::Tensor& x) const;
};

struct Dinov3Layer {
  tensor::nn::LayerNorm norm1, norm2;
  tensor::nn::Linear query, key, value, output;
  tensor::Tensor scale1, scale2;      // [width]
  tensor::nn::Linear gate, up, down;  // the gate is undefined where absent
  std::int64_t heads = 1;
  Activation activation = tensor::gelu;

  static Dinov3Layer sized(const Dinov3Config& config);
  tensor::Tensor operator()(const tensor::Tensor& x, const Rotation& rotation) const;
  void members(auto&& visit) {
    visit("norm1", norm1), visit("norm2", norm2);
    visit("attention.q_proj", query), visit("attention.k_proj", key);
    visit("attention.v_proj", value), visit("attention.o_proj", output);
    visit("layer_scale1.lambda1", scale1), visit("layer_scale2.lambda1", scale2);
    visit("mlp.gate_proj", gate), visit("mlp.up_proj", up), visit("mlp.down_proj", down);
  }

 private:
  tensor::Tensor attend(const tensor::Tensor& x, const Rotation& rotation) const;
};

struct Dinov3 {
  tensor::Tensor cls_token, registers;  // [1, 1, width], [1, registers, width] or undefined
  tensor::nn::Conv2d patches;
  std::vector<Dinov3Layer> layers;
  tensor::nn::LayerNorm norm;
  double theta = 100;
  Size image;  // that `describe` counts for

  static Dinov3 sized(const Dinov3Config& config);
  /// "last_hidden_state" and "pooler_output", its class token. `observe` sees "hidden_states.0",
  /// the embeddings, then every layer's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("embeddings.cls_token", cls_token), visit("embeddings.register_tokens", registers);
    visit("embeddings.patch_embeddings", patches), visit("layer", layers), visit("norm", norm);
  }
  /// How many tokens stand before the patches.
  std::int64_t before() const { return 1 + (registers.defined() ? registers.shape(1) : 0); }
};

Info describe(const std::string& name, Dinov3& model);

/// DINOv3ViTModel.
VisionModel load_dinov3(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::dinov3

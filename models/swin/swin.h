// Swin Transformer (Liu et al., 2021): attention within windows of an image, which every other
// block shifts. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/vision_model.h"

namespace models::swin {

struct SwinConfig {
  std::int64_t width = 96;  // of the first stage; each later one has twice that
  std::vector<std::int64_t> depths = {2, 2, 6, 2}, heads = {3, 6, 12, 24};  // of the stages
  std::int64_t window = 7, channels = 3, classes = 1000;  // classes 0: no classifier
  Size image{224, 224}, patch{4, 4};
  double mlp_ratio = 4, eps = 1e-5;
  bool qkv_bias = true;
  Activation activation = tensor::gelu;
};

struct SwinBlock {
  tensor::nn::LayerNorm norm_before, norm_after;
  tensor::nn::MultiheadAttention attention;
  tensor::Tensor bias_table;  // [(2 window - 1)^2, heads]: by how far a key is from its query
  tensor::nn::Linear fc1, fc2;
  std::int64_t window = 7, shift = 0;
  Activation activation = tensor::gelu;

  static SwinBlock sized(std::int64_t width, std::int64_t heads, bool is_shifted,
                         const SwinConfig& config);
  /// x [B, h, w, C].
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("layernorm_before", norm_before), visit("layernorm_after", norm_after);
    visit("attention.self.query", attention.query), visit("attention.self.key", attention.key);
    visit("attention.self.value", attention.value);
    visit("attention.self.relative_position_bias_table", bias_table);
    visit("attention.output.dense", attention.output);
    visit("intermediate.dense", fc1), visit("output.dense", fc2);
  }

 private:
  /// The attention of x that was moved on by so many pixels.
  tensor::Tensor attend(const tensor::Tensor& x, std::int64_t shifted) const;
};

/// Each two by two pixels become one of twice the width.
struct SwinMerging {
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear reduction;
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("norm", norm), visit("reduction", reduction); }
};

struct SwinStage {
  std::vector<SwinBlock> blocks;
  SwinMerging downsample;  // undefined in the last one
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("blocks", blocks), visit("downsample", downsample); }
};

struct Swin {
  tensor::nn::Conv2d patches;
  tensor::nn::LayerNorm patch_norm;
  std::vector<SwinStage> stages;
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear classifier;  // undefined where absent
  Size image{224, 224};           // that `describe` counts for

  static Swin sized(const SwinConfig& config);
  /// "logits", or "last_hidden_state" [B, pixels, C] and "pooler_output" [B, C]. `observe` sees
  /// "hidden_states.0", the patches, then every stage's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("embeddings.patch_embeddings.projection", patches), visit("embeddings.norm", patch_norm);
    visit("encoder.layers", stages), visit("layernorm", norm), visit("classifier", classifier);
  }
};

Info describe(const std::string& name, Swin& model);

/// SwinForImageClassification or SwinModel.
VisionModel load_swin(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::swin

// The image encoder of Segment Anything (Kirillov et al., 2023): a ViT most of whose layers attend
// within windows, with what each query adds for the rows and the columns between it and a key.
// Members are called as in transformers' checkpoints but for the fused queries, keys and values.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/vision_model.h"

namespace models::sam {

struct SamConfig {
  std::int64_t width = 768, layers = 12, heads = 12, mlp = 3072, channels = 3;
  std::int64_t image = 1024, patch = 16, output = 256;  // squares
  std::int64_t window = 14;                             // 0: every layer sees the whole image
  std::vector<std::int64_t> whole = {2, 5, 8, 11};      // layers that do so in any case
  double eps = 1e-6;
  bool qkv_bias = true, has_position = true, has_distances = true;
  Activation activation = tensor::gelu;
};

struct SamLayer {
  tensor::nn::LayerNorm norm1, norm2;
  tensor::nn::MultiheadAttention attention;
  // By how far a key is from its query: [2 side - 1, features of a head]; or undefined.
  tensor::Tensor row_distances, column_distances;
  tensor::nn::Linear fc1, fc2;
  std::int64_t window = 0;  // 0: the whole image
  Activation activation = tensor::gelu;

  static SamLayer sized(std::int64_t window, const SamConfig& config);
  /// x [B, h, w, C].
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("layer_norm1", norm1), visit("layer_norm2", norm2), visit("attn", attention);
    visit("attn.rel_pos_h", row_distances), visit("attn.rel_pos_w", column_distances);
    visit("mlp.lin1", fc1), visit("mlp.lin2", fc2);
  }

 private:
  /// The attention within each of x.
  tensor::Tensor attend(const tensor::Tensor& x) const;
};

struct Sam {
  tensor::nn::Conv2d patches;
  tensor::Tensor position;  // [1, h, w, width], or undefined
  std::vector<SamLayer> layers;
  tensor::nn::Conv2d conv1, conv2;
  tensor::nn::LayerNorm norm1, norm2;
  std::int64_t image = 1024;

  static Sam sized(const SamConfig& config);
  /// "last_hidden_state" [B, output, h, w]. `observe` sees "hidden_states.0", the embeddings, then
  /// every layer's output, each [B, h, w, width].
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("patch_embed.projection", patches), visit("pos_embed", position);
    visit("layers", layers), visit("neck.conv1", conv1), visit("neck.layer_norm1", norm1);
    visit("neck.conv2", conv2), visit("neck.layer_norm2", norm2);
  }
};

Info describe(const std::string& name, Sam& model);

/// The vision encoder of SamModel, or SamVisionModel.
VisionModel load_sam(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::sam

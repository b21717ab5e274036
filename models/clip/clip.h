// The image towers of CLIP (Radford et al., 2021) and SigLIP (Zhai et al., 2023): ViTs whose output
// lies near that of a text. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/vision_model.h"
#include "models/vit/vit.h"

namespace models::clip {

struct ClipConfig {
  bool is_siglip = false;  // no class token, no norm before the layers, biases in the patches
  std::int64_t width = 768, layers = 12, heads = 12, mlp = 3072, channels = 3, patch = 32;
  std::int64_t projection = 0;  // CLIP's outputs, 0: not projected
  std::int64_t classes = 0;     // 0: no classifier
  bool has_pooling = true;      // SigLIP's attention pooling
  bool any_size = false;        // whether the position embedding may be resized
  Size image{224, 224};
  double eps = 1e-5;
  Activation activation = quick_gelu;
};

struct ClipLayer {
  vit::VitLayer layer;
  tensor::Tensor operator()(const tensor::Tensor& x) const { return layer(x); }
  void members(auto&& visit) {
    visit("layer_norm1", layer.norm_before), visit("layer_norm2", layer.norm_after);
    visit("self_attn.q_proj", layer.attention.query),
        visit("self_attn.k_proj", layer.attention.key);
    visit("self_attn.v_proj", layer.attention.value);
    visit("self_attn.out_proj", layer.attention.output);
    visit("mlp.fc1", layer.fc1), visit("mlp.fc2", layer.fc2);
  }
};

/// One query, the probe, asks all tokens.
struct AttentionPooling {
  tensor::Tensor probe;  // [1, 1, width]
  tensor::nn::MultiheadAttention attention;
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear fc1, fc2;
  Activation activation = quick_gelu;
  /// [B, tokens, width] to [B, width].
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("probe", probe), visit("attention", attention), visit("layernorm", norm);
    visit("mlp.fc1", fc1), visit("mlp.fc2", fc2);
  }
};

struct ClipTower {
  tensor::Tensor class_token;  // [width], undefined in SigLIP
  tensor::Tensor position;     // [tokens, width]
  tensor::nn::Conv2d patches;
  tensor::nn::LayerNorm norm_before, norm_after;  // the first undefined in SigLIP
  std::vector<ClipLayer> layers;
  AttentionPooling pooling;                   // undefined in CLIP
  tensor::nn::Linear projection, classifier;  // undefined where absent
  Size image;
  bool any_size = false;

  static ClipTower sized(const ClipConfig& config);
  /// "logits" of a classifier of the patches' mean; or "last_hidden_state" with "pooler_output" and
  /// the projected "image_embeds", as far as there are such. `observe` sees "hidden_states.0", the
  /// first layer's input, then every layer's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("embeddings.class_embedding", class_token);
    visit("embeddings.position_embedding.weight", position);
    visit("embeddings.patch_embedding", patches);
    visit("pre_layrnorm", norm_before), visit("post_layernorm", norm_after);
    visit("encoder.layers", layers), visit("head", pooling);
    visit("visual_projection", projection), visit("classifier", classifier);
  }

 private:
  bool is_siglip() const { return !class_token.defined(); }
  tensor::Tensor embed(const tensor::Tensor& pixels) const;
};

Info describe(const std::string& name, ClipTower& model);

/// The image tower of CLIPModel, CLIPVisionModel, CLIPVisionModelWithProjection and
/// CLIPForImageClassification, and of their likes of SigLIP.
VisionModel load_clip(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::clip

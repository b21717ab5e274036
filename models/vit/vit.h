// ViT (Dosovitskiy et al., 2020): an image as a sequence of patches through a pre-norm transformer
// encoder. The architecture alone: names, files and images are the other files' business.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/observer.h"
#include "models/common/preprocess.h"
#include "tensor/nn.h"

namespace models::vit {

using models::Activation;

/// What happens to the position embedding when an image is not of the trained size.
enum class PositionResize {
  refuse,
  huggingface,  // bicubic
  timm          // bicubic, antialiased
};

struct VitConfig {
  std::int64_t width = 768, layers = 12, heads = 12, mlp = 3072;
  Size image{224, 224}, patch{16, 16};
  std::int64_t channels = 3;
  std::int64_t classes = 1000;  // 0: no classifier
  std::int64_t pooler = 0;      // the pooler's outputs, 0: no pooler
  bool qkv_bias = true;
  double eps = 1e-12;
  Activation activation = tensor::gelu;
  PositionResize position_resize = PositionResize::refuse;

  Size grid() const { return {image.height / patch.height, image.width / patch.width}; }
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
struct VitLayer {
  tensor::nn::LayerNorm norm_before;
  tensor::nn::MultiheadAttention attention;
  tensor::nn::LayerNorm norm_after;
  tensor::nn::Linear fc1, fc2;
  Activation activation = tensor::gelu;

  static VitLayer sized(const VitConfig& config);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("norm_before", norm_before), visit("attention", attention);
    visit("norm_after", norm_after), visit("fc1", fc1), visit("fc2", fc2);
  }
};

/// A position embedding [1, before + side^2, width], whose first rows are of other tokens than
/// patches, for so many patches: bicubic, as transformers (and timm with antialiasing) resize it.
/// UserError where the patches it has are no square.
tensor::Tensor resized_position(const tensor::Tensor& position, std::int64_t before, Size grid,
                                bool antialias);

/// Pixels [B, C, H, W] to tokens [B, 1 + patches, width]: a class token, then the patches in rows.
struct VitEmbeddings {
  tensor::Tensor cls_token;  // [1, 1, width]
  tensor::Tensor position;   // [1, 1 + patches, width]
  tensor::nn::Conv2d patch;
  Size image;
  PositionResize position_resize = PositionResize::refuse;

  static VitEmbeddings sized(const VitConfig& config);
  tensor::Tensor operator()(const tensor::Tensor& pixels) const;
  void members(auto&& visit) {
    visit("cls_token", cls_token), visit("position", position), visit("patch", patch);
  }

 private:
  tensor::Tensor position_for(Size image) const;
};

struct VitOutput {
  tensor::Tensor last_hidden_state;  // [B, tokens, width], normalised
  tensor::Tensor logits;             // [B, classes], undefined without a classifier
  tensor::Tensor pooler_output;      // [B, pooler], undefined without a pooler
};

struct Vit {
  VitEmbeddings embeddings;
  std::vector<VitLayer> layers;
  tensor::nn::LayerNorm norm;
  tensor::nn::Linear classifier, pooler;  // undefined where absent

  static Vit sized(const VitConfig& config);
  /// `observe` sees "hidden_states.0", the embeddings, then every layer's output.
  VitOutput operator()(const tensor::Tensor& pixels, const Observer& observe = {}) const;
  void members(auto&& visit) {
    visit("embeddings", embeddings), visit("layers", layers), visit("norm", norm);
    visit("classifier", classifier), visit("pooler", pooler);
  }
};

}  // namespace models::vit

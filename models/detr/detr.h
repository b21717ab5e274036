// DETR (Carion et al., 2020): a ResNet, a transformer encoder and decoder, and a class and a box
// for every query.
#pragma once

#include <vector>

#include "models/common/activation.h"
#include "models/common/observer.h"
#include "models/detr/resnet.h"

namespace models::detr {

struct DetrConfig {
  ResNetConfig backbone = ResNetConfig::resnet50();
  std::int64_t width = 256, queries = 100, classes = 91;  // classes without "no object"
  std::int64_t encoder_layers = 6, encoder_heads = 8, encoder_ffn = 2048;
  std::int64_t decoder_layers = 6, decoder_heads = 8, decoder_ffn = 2048;
};

/// Two linear layers with an activation between them.
struct FeedForward {
  tensor::nn::Linear fc1, fc2;
  Activation activation = tensor::relu;

  tensor::Tensor operator()(const tensor::Tensor& x) const { return fc2(activation(fc1(x))); }
  void members(auto&& visit) { visit("fc1", fc1), visit("fc2", fc2); }
};

/// Post-norm; the position is added to queries and keys, never to values.
struct EncoderLayer {
  tensor::nn::MultiheadAttention self_attention;
  tensor::nn::LayerNorm self_attention_norm;
  FeedForward ffn;
  tensor::nn::LayerNorm ffn_norm;

  tensor::Tensor operator()(const tensor::Tensor& x, const tensor::Tensor& position,
                            const tensor::Tensor& keep) const;
  void members(auto&& visit) {
    visit("self_attention", self_attention), visit("self_attention_norm", self_attention_norm);
    visit("ffn", ffn), visit("ffn_norm", ffn_norm);
  }
};

/// As the encoder's, with attention to the encoder's output in the middle.
struct DecoderLayer {
  tensor::nn::MultiheadAttention self_attention;
  tensor::nn::LayerNorm self_attention_norm;
  tensor::nn::MultiheadAttention cross_attention;
  tensor::nn::LayerNorm cross_attention_norm;
  FeedForward ffn;
  tensor::nn::LayerNorm ffn_norm;

  tensor::Tensor operator()(const tensor::Tensor& x, const tensor::Tensor& queries,
                            const tensor::Tensor& memory, const tensor::Tensor& position,
                            const tensor::Tensor& keep) const;
  void members(auto&& visit) {
    visit("self_attention", self_attention), visit("self_attention_norm", self_attention_norm);
    visit("cross_attention", cross_attention), visit("cross_attention_norm", cross_attention_norm);
    visit("ffn", ffn), visit("ffn_norm", ffn_norm);
  }
};

struct DetrOutput {
  tensor::Tensor logits;      // [B, queries, classes + 1], "no object" last
  tensor::Tensor pred_boxes;  // [B, queries, 4]: centre x, y, width, height in [0, 1]
  tensor::Tensor encoder_last_hidden_state;  // [B, tokens, width]
  tensor::Tensor last_hidden_state;          // [B, queries, width]
};

struct Detr {
  ResNet backbone;
  tensor::nn::Conv2d input_projection;
  tensor::nn::Embedding queries;
  std::vector<EncoderLayer> encoder;
  std::vector<DecoderLayer> decoder;
  tensor::nn::LayerNorm decoder_norm;
  tensor::nn::Linear class_head;
  std::vector<tensor::nn::Linear> box_head;

  static Detr sized(const DetrConfig& config);
  /// pixels [B, 3, H, W]; mask [B, H, W] is nonzero on the image and 0 on padding, undefined where
  /// there is none. Observed are the stages of the backbone, "backbone.N", and as transformers
  /// counts them "encoder_hidden_states.N" and "decoder_hidden_states.N": 0 is the first layer's
  /// input, and the decoder's last one comes after the final norm.
  DetrOutput operator()(const tensor::Tensor& pixels, const tensor::Tensor& mask = {},
                        const Observer& observe = {}) const;
  void members(auto&& visit) {
    visit("backbone", backbone), visit("input_projection", input_projection);
    visit("queries", queries), visit("encoder", encoder), visit("decoder", decoder);
    visit("decoder_norm", decoder_norm), visit("class_head", class_head);
    visit("box_head", box_head);
  }
};

/// The position of every cell of a feature grid, [B, h * w, width]: half of the channels say how
/// far down the cell is in the masked image, half how far to the right. mask [B, h, w] holds 1 for
/// image and 0 for padding.
tensor::Tensor sine_position(const tensor::Tensor& mask, std::int64_t width);
/// The same bits for a mask of ones, by one row and one column of it: [1, rows * columns, width].
tensor::Tensor sine_position(std::int64_t rows, std::int64_t columns, std::int64_t width);

}  // namespace models::detr

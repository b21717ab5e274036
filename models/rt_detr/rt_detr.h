// RT-DETR (Zhao et al., 2023; V2: Lv et al., 2024): a ResNet, a hybrid encoder, and a decoder whose
// queries are the most promising places of the encoder's maps. Members are called as in
// transformers' checkpoints but for those of the decoder's layers.
#pragma once

#include <string>
#include <vector>

#include "models/detr/detector.h"
#include "models/rt_detr/hybrid_encoder.h"
#include "models/rt_detr/resnet_vd.h"

namespace models::rt_detr {

struct RtDetrConfig {
  ResNetVdConfig backbone;
  std::vector<std::int64_t> stages = {1, 2, 3};  // whose outputs the encoder reads
  EncoderConfig encoder;
  std::int64_t width = 256, queries = 300, classes = 80;
  std::int64_t layers = 6, heads = 8, ffn = 1024, points = 4;  // of the decoder
  double offset_scale = 0.5;
  Activation ffn_activation = tensor::relu;
};

/// Linear layers with a ReLU between them.
struct Mlp {
  std::vector<tensor::nn::Linear> layers;
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) { visit("layers", layers); }
};

/// Attention to a few points of each map, which each query chooses near its box.
struct DeformableAttention {
  tensor::nn::Linear offsets, weights, value, output;
  std::int64_t heads = 8, points = 4;
  double offset_scale = 0.5;

  static DeformableAttention sized(const RtDetrConfig& config);
  /// x [B, queries, width], boxes [B, queries, 4] of centre and size, tokens [B, cells, width] of
  /// all maps, whose sizes are `grids`.
  tensor::Tensor operator()(const tensor::Tensor& x, const tensor::Tensor& boxes,
                            const tensor::Tensor& tokens, const std::vector<Size>& grids) const;
  void members(auto&& visit) {
    visit("sampling_offsets", offsets), visit("attention_weights", weights);
    visit("value_proj", value), visit("output_proj", output);
  }
};

struct DecoderLayer {
  tensor::nn::MultiheadAttention self_attention;
  tensor::nn::LayerNorm self_attention_norm;
  DeformableAttention cross_attention;
  tensor::nn::LayerNorm cross_attention_norm;
  detr::FeedForward ffn;
  tensor::nn::LayerNorm ffn_norm;

  static DecoderLayer sized(const RtDetrConfig& config);
  tensor::Tensor operator()(const tensor::Tensor& x, const tensor::Tensor& position,
                            const tensor::Tensor& boxes, const tensor::Tensor& tokens,
                            const std::vector<Size>& grids) const;
  void members(auto&& visit) {
    visit("self_attention", self_attention), visit("self_attention_norm", self_attention_norm);
    visit("cross_attention", cross_attention), visit("cross_attention_norm", cross_attention_norm);
    visit("ffn", ffn), visit("ffn_norm", ffn_norm);
  }
};

struct RtDetr {
  ResNetVd backbone;
  std::vector<std::int64_t> stages;
  std::vector<ConvNorm> encoder_input, decoder_input;  // of every map
  HybridEncoder encoder;
  tensor::nn::Linear memory;
  tensor::nn::LayerNorm memory_norm;
  tensor::nn::Linear proposed_class;
  Mlp proposed_box;
  std::vector<DecoderLayer> decoder;
  Mlp position;  // of a box
  std::vector<Mlp> box_heads;
  tensor::nn::Linear class_head;
  std::int64_t queries = 300;

  static RtDetr sized(const RtDetrConfig& config);
  /// "logits", "pred_boxes" and "last_hidden_state". Observed are the stages of the backbone,
  /// "backbone.N", "encoder_maps.N" and every decoder layer's output, "decoder_hidden_states.N"
  /// from 1 on.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("backbone.model", backbone), visit("encoder_input_proj", encoder_input);
    visit("encoder", encoder), visit("decoder_input_proj", decoder_input);
    visit("enc_output.0", memory), visit("enc_output.1", memory_norm);
    visit("enc_score_head", proposed_class), visit("enc_bbox_head", proposed_box);
    visit("decoder.layers", decoder);
    visit("decoder.query_pos_head", position), visit("decoder.bbox_embed", box_heads);
    visit("decoder.class_embed." + std::to_string(decoder.size() - 1), class_head);
  }

 private:
  /// Features and boxes, as logits, of the places that are most promising: [B, queries, ...].
  struct Proposals {
    tensor::Tensor features, boxes;
  };
  Proposals propose(const tensor::Tensor& tokens, const std::vector<Size>& grids) const;
};

/// How large it is: what `detr --info` prints.
Info describe(RtDetr& net, const std::string& model, Size image);

/// RTDetrForObjectDetection or RTDetrV2ForObjectDetection.
detr::Detector load_rt_detr(const Checkpoint& checkpoint);

}  // namespace models::rt_detr

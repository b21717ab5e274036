// SegFormer (Xie et al., 2021): stages of attention to a smaller image, whose outputs an MLP joins
// to a class map. Members are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/activation.h"
#include "models/common/vision_model.h"

namespace models::segformer {

/// Lists have an entry a stage.
struct SegformerConfig {
  std::vector<std::int64_t> widths = {32, 64, 160, 256}, depths = {2, 2, 2, 2};
  std::vector<std::int64_t> heads = {1, 2, 5, 8}, reductions = {8, 4, 2, 1};
  std::vector<std::int64_t> patches = {7, 3, 3, 3}, strides = {4, 2, 2, 2},
                            mlp_ratios = {4, 4, 4, 4};
  std::int64_t channels = 3, decoder = 256, classes = 150;
  Activation activation = tensor::gelu;
};

/// A convolution whose windows overlap, and a norm: [B, C, h, w] to [B, C', h', w'].
struct OverlappingPatches {
  tensor::nn::Conv2d proj;
  tensor::nn::LayerNorm norm;
  void members(auto&& visit) { visit("proj", proj), visit("layer_norm", norm); }
};

struct SegformerLayer {
  tensor::nn::LayerNorm norm_before, norm_after;
  tensor::nn::MultiheadAttention attention;
  tensor::nn::Conv2d reduction;          // of what keys and values are made from
  tensor::nn::LayerNorm reduction_norm;  // both undefined where nothing is reduced
  tensor::nn::Linear fc1, fc2;
  tensor::nn::Conv2d depthwise;
  Activation activation = tensor::gelu;

  static SegformerLayer sized(std::size_t stage, const SegformerConfig& config);
  /// Tokens [B, h w, C] of an image.
  tensor::Tensor operator()(const tensor::Tensor& x, Size grid) const;
  void members(auto&& visit) {
    visit("layer_norm_1", norm_before), visit("layer_norm_2", norm_after);
    visit("attention.self.query", attention.query), visit("attention.self.key", attention.key);
    visit("attention.self.value", attention.value), visit("attention.self.sr", reduction);
    visit("attention.self.layer_norm", reduction_norm);
    visit("attention.output.dense", attention.output);
    visit("mlp.dense1", fc1), visit("mlp.dwconv.dwconv", depthwise), visit("mlp.dense2", fc2);
  }
};

/// A stage's features, as wide as the decoder.
struct Projection {
  tensor::nn::Linear linear;
  void members(auto&& visit) { visit("proj", linear); }
};

struct Segformer {
  std::vector<OverlappingPatches> patches;          // of each stage
  std::vector<std::vector<SegformerLayer>> layers;  // of each stage
  std::vector<tensor::nn::LayerNorm> norms;         // of each stage
  std::vector<Projection> projections;              // of each stage
  tensor::nn::Conv2d fuse, classifier;
  tensor::nn::BatchNorm2d fuse_norm;
  Size image{512, 512};  // that `describe` counts for

  static Segformer sized(const SegformerConfig& config);
  /// "logits" [B, classes, h, w] at the first stage's resolution. `observe` sees "hidden_states.0"
  /// and so on, every stage's output.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("encoder.patch_embeddings", patches), visit("encoder.block", layers);
    visit("encoder.layer_norm", norms), visit("decode_head.linear_c", projections);
    visit("decode_head.linear_fuse", fuse), visit("decode_head.batch_norm", fuse_norm);
    visit("decode_head.classifier", classifier);
  }
};

Info describe(const std::string& name, Segformer& model);

/// SegformerForSemanticSegmentation.
VisionModel load_segformer(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::segformer

// SETR (Zheng et al., 2021): a ViT whose patch tokens a convolutional head turns into a class map.
// The two public implementations, fudan-zvg/SETR and mmsegmentation, have different heads.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/common/conv_norm.h"
#include "models/common/observer.h"
#include "models/vit/vit.h"

namespace models::setr {

enum class Flavour { fudan, mmseg };
enum class Head { naive, pup, mla };

struct SetrConfig {
  Flavour flavour = Flavour::fudan;
  Head head = Head::naive;
  std::int64_t width = 1024, heads = 16, ffn = 4096, layers = 24;
  std::int64_t image_size = 384, patch_size = 16, channels = 3, classes = 19;
  std::int64_t decoder_channels = 256;
  std::int64_t decoder_layers = 1;        // naive and PUP: convolutions before the classifier
  std::int64_t head_channels = 128;       // MLA: of each stream before the classifier
  std::vector<std::int64_t> taps = {23};  // encoder layers whose output the head reads, ascending
  std::optional<bool> class_token = {};   // in the layers? Not for MLA if nothing is said
  bool final_norm = false;                // mmseg: a norm of what the last layer gives
  double eps = 1e-6;

  bool has_class_token() const { return class_token.value_or(head != Head::mla); }
  /// "setr-naive-base", "setr-naive", "setr-pup" or "setr-mla": fudan's for Cityscapes.
  static SetrConfig standard(std::string_view model, std::int64_t image_size = 384);
};

/// What the MLA head does with one encoder layer's output.
struct MlaStream {
  tensor::nn::LayerNorm norm;
  ConvNorm lateral, smooth;  // before and after the sum over deeper streams
  ConvNorm narrow, refine;

  void members(auto&& visit) {
    visit("norm", norm), visit("lateral", lateral), visit("smooth", smooth);
    visit("narrow", narrow), visit("refine", refine);
  }
};

struct Setr {
  SetrConfig config;
  tensor::Tensor class_token, position;  // [1, 1, width], [1, 1 + cells, width]
  tensor::nn::Conv2d patches;
  std::vector<vit::VitLayer> layers;
  tensor::nn::LayerNorm final_norm;  // undefined where absent
  tensor::nn::LayerNorm norm;        // naive and PUP
  std::vector<ConvNorm> upsample;    // naive and PUP
  std::vector<MlaStream> streams;    // MLA, shallow to deep
  tensor::nn::Conv2d classifier;

  static Setr sized(const SetrConfig& config);
  /// pixels [B, 3, H, W] to logits [B, classes, H, W]. fudan takes image_size squares only, mmseg
  /// any size. Observed are "hidden_states.N": 0 is the first layer's input, then every layer's
  /// output.
  tensor::Tensor operator()(const tensor::Tensor& pixels, const Observer& observe = {}) const;
  void members(auto&& visit) {
    visit("class_token", class_token), visit("position", position), visit("patches", patches);
    visit("layers", layers), visit("final_norm", final_norm), visit("norm", norm);
    visit("upsample", upsample);
    visit("streams", streams), visit("classifier", classifier);
  }
};

}  // namespace models::setr

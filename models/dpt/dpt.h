// DPT (Ranftl et al., 2021), as Depth Anything (Yang et al., 2024) has it: some layers of a DINOv2
// become images of several sizes, which are joined from the smallest on to a map of depth. Members
// are called as in transformers' checkpoints.
#pragma once

#include <string>
#include <vector>

#include "models/common/vision_model.h"
#include "models/dinov2/dinov2.h"

namespace models::dpt {

/// Lists have an entry a tapped layer.
struct DptConfig {
  dinov2::Dinov2Config backbone;
  std::vector<std::int64_t> taps = {9, 10, 11, 12};  // hidden states, ascending
  std::vector<std::int64_t> widths = {48, 96, 192, 384};
  std::vector<double> factors = {4, 2, 1, 0.5};  // by which images become larger
  std::int64_t fusion = 64, head = 32;           // features
  bool is_metric = false;                        // distances up to the largest, not nearness
  double largest = 1;

  /// "depth-anything-small", "-base" or "-large".
  static DptConfig standard(std::string_view model);
};

/// A layer's patches as an image, enlarged or shrunk.
struct Reassembling {
  tensor::nn::Conv2d projection;
  tensor::Tensor weight, bias;  // undefined where the size stays
  std::int64_t enlarged = 1, shrunk = 1;

  static Reassembling sized(std::int64_t in, std::int64_t out, double factor);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("projection", projection), visit("resize.weight", weight), visit("resize.bias", bias);
  }
};

/// x + what two convolutions make of it.
struct Residual {
  tensor::nn::Conv2d convolution1, convolution2;

  static Residual sized(std::int64_t features);
  tensor::Tensor operator()(const tensor::Tensor& x) const;
  void members(auto&& visit) {
    visit("convolution1", convolution1), visit("convolution2", convolution2);
  }
};

/// Adds an image to the one that is joined of smaller ones, and enlarges it.
struct Fusion {
  tensor::nn::Conv2d projection;
  Residual added, joined;  // `added` is undefined in the first one

  tensor::Tensor operator()(const tensor::Tensor& x, const tensor::Tensor& image,
                            tensor::Pair size) const;
  void members(auto&& visit) {
    visit("projection", projection);
    visit("residual_layer1", added), visit("residual_layer2", joined);
  }
};

struct Dpt {
  dinov2::Dinov2 backbone;
  std::vector<Reassembling> reassembling;
  std::vector<tensor::nn::Conv2d> convs;
  std::vector<Fusion> fusion;  // in the order that they are used, from the deepest layer on
  tensor::nn::Conv2d conv1, conv2, conv3;
  std::vector<std::int64_t> taps;
  bool is_metric = false;
  double largest = 1;

  static Dpt sized(const DptConfig& config);
  /// "predicted_depth" [B, h, w] of whole patches. `observe` sees the backbone's hidden states.
  tensor::nn::StateDict operator()(const tensor::Tensor& pixels, const Observer& observe) const;
  void members(auto&& visit) {
    visit("backbone", backbone), visit("neck.reassemble_stage.layers", reassembling);
    visit("neck.convs", convs), visit("neck.fusion_stage.layers", fusion);
    visit("head.conv1", conv1), visit("head.conv2", conv2), visit("head.conv3", conv3);
  }

 private:
  /// The images of the tapped layers, of the same width.
  std::vector<tensor::Tensor> tapped(const tensor::Tensor& pixels, Size grid,
                                     const Observer& observe) const;
};

Info describe(const std::string& name, Dpt& model);

/// The model as the program takes it.
VisionModel vision_model(const DptConfig& config, Dpt net);
/// What transformers' DPTImageProcessor does for Depth Anything.
Preprocessing default_preprocessing();

/// DepthAnythingForDepthEstimation.
VisionModel load_depth_anything(const Checkpoint& checkpoint, const LoadSettings& settings);

}  // namespace models::dpt

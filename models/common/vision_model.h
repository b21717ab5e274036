// VisionModel: a model of pictures behind one interface, whatever its architecture, as the programs
// run it. models/registry makes one of a checkpoint folder.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/draw.h"
#include "models/common/info.h"
#include "models/common/labels.h"
#include "models/common/observer.h"
#include "models/common/preprocess.h"
#include "tensor/nn.h"

namespace models {

/// How a picture becomes pixel_values, in two steps, of which a GPU takes the second.
struct Preparation {
  /// The size of what `fit` makes of a picture.
  std::function<Size(Size picture)> size;
  /// u8 [H, W, 3] to u8 [h, w, 3].
  std::function<tensor::Tensor(const tensor::Tensor& picture)> fit;
  /// u8 [h, w, 3] to f32 [1, 3, h, w], on the host.
  std::function<tensor::Tensor(const tensor::Tensor& levels)> normalize;
  /// u8 [N, h, w, 3] to f32 [N, 3, h, w], in operators that can be traced.
  std::function<tensor::Tensor(const tensor::Tensor& levels)> normalize_levels;
};
Preparation preparation(const Preprocessing& rule);

struct VisionModel {
  /// pixel_values [B, channels, H, W] to named outputs: "logits" of a classifier [B, classes] or of
  /// a segmenter [B, classes, H / stride, W / stride], "predicted_depth" [B, h, w], otherwise
  /// features. It can be traced.
  std::function<tensor::nn::StateDict(const tensor::Tensor& pixels, const Observer& observe)> run;
  std::function<std::vector<tensor::nn::Parameter>()> parameters;
  std::function<Info(const std::string& name)> info;
  std::int64_t channels = 3;
  Size image{224, 224};    // that it is for
  std::int64_t steps = 1;  // how often `run` calls its observer
  Preparation preparation = {};
  std::vector<std::string> labels = {};  // of the classes; empty without any
  Scores scores = Scores::softmax;       // of a classifier

  // What follows is that of a segmenter.
  std::vector<Color> colors = {};  // of the classes
  std::int64_t stride = 1;         // how many pixels, in either direction, have one row of logits
  std::int64_t window = 0;  // the side of the squares that pictures are cut to; 0: they are not
  bool is_window_least = false;  // whether smaller images are refused

  // What follows is that of a model of depth.
  bool is_nearness = false;  // "predicted_depth" is larger where something is nearer

  /// The model that a module of pixels and an observer is, with the module's parameters.
  template <class Module>
  static VisionModel of(Module module) {
    const auto held = std::make_shared<Module>(std::move(module));
    VisionModel model;
    model.run = [held](const tensor::Tensor& pixels, const Observer& observe) {
      return (*held)(pixels, observe);
    };
    model.parameters = [held] { return tensor::nn::parameters(*held); };
    model.info = [held](const std::string& name) { return describe(name, *held); };
    return model;
  }
};

/// What the programs' options ask of a model when it is loaded.
struct LoadSettings {
  bool any_size = false;  // of pixel_values, where the position embedding must be resized for it
  std::optional<SizeRule> scale = {};  // what pictures are resized to, in place of the folder's
};

/// UserError unless pixels are [batch, channels, height, width] with at least `least` of them.
void check_pixels(const tensor::Tensor& pixels, std::int64_t channels, Size least);

/// The patches [B, C, h, w] of an image in rows: [B, h w, C].
tensor::Tensor as_tokens(const tensor::Tensor& map);
/// The map that such rows are of.
tensor::Tensor as_map(const tensor::Tensor& tokens, Size grid);

}  // namespace models

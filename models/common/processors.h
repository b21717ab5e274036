// preprocessor_config.json: which class of transformers prepares the images, what that class does
// where the file says nothing, and what the file changes.
#pragma once

#include <vector>

#include "models/common/preprocess.h"
#include "tensor/json.h"

namespace models {

/// ImageNet's constants, CLIP's, and those that map the levels to -1 ... 1.
struct ChannelConstants {
  std::array<float, 3> mean, std;
};
inline constexpr ChannelConstants kImageNet{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
inline constexpr ChannelConstants kClip{{0.48145466f, 0.4578275f, 0.40821073f},
                                        {0.26862954f, 0.26130258f, 0.27577711f}};
inline constexpr ChannelConstants kHalf{{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 0.5f}};

/// A class that a reader knows.
struct ProcessorClass {
  /// How the size that a file gives becomes the resize.
  enum class Fit {
    as_it_is,
    convnext,    // below 384 the short side to size / crop_pct, and a crop; from there on squeezed
    poolformer,  // the short side to size / crop_pct
    levit,       // the short side to 256 / 224 of it
    dpt          // to multiples of ensure_multiple_of, with keep_aspect_ratio or without
  };
  std::string_view name;   // "ViT" of ViTImageProcessor and ViTFeatureExtractor
  Preprocessing defaults;  // before `fit`
  bool square = true;      // what a number alone is as the size: a square, or the short side
  Size crop = {};          // what is cut out if a file asks for it and gives no size
  Fit fit = Fit::as_it_is;
  double crop_share = 1;          // crop_pct
  std::string_view refused = {};  // a key that is true unless the file says false, and then refused
};

/// Reads preprocessor_config.json in all its public forms, for the class that it names: the first
/// where it names none. UserError on any other class, and on every key that is not known.
Preprocessing read_preprocessing(const tensor::Json& config,
                                 const std::vector<ProcessorClass>& classes);

/// One number for every channel, or three.
std::array<float, 3> read_channels(const tensor::Json& value);
/// The same for numbers to divide by: above 0.
std::array<float, 3> read_deviations(const tensor::Json& value);

}  // namespace models

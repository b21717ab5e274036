// From a u8 image [H, W, 3] to the pixel_values [3, h, w] of a model: resize, centre crop, rescale,
// normalise. models/common/processors.h reads what preprocessor_config.json says of it.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "models/common/resize.h"

namespace models {

struct Size {
  std::int64_t height = 0, width = 0;
  friend bool operator==(const Size&, const Size&) = default;
};

/// The size an image is resized to.
struct SizeRule {
  enum class Kind {
    exact,          // to `size`, whatever the aspect
    shortest_edge,  // the short side to `shortest`, the long one at most `longest` (0: no limit)
    within,         // as large as fits into `size`, aspect kept
    multiples,      // near `size`, to multiples of `multiple`
    longest_edge    // the long side to `longest`, the short one rounded, halves up
  };
  Kind kind = Kind::exact;
  Size size;
  std::int64_t shortest = 0, longest = 0;
  std::int64_t multiple = 1;
  bool keeps_aspect = false;  // of `multiples`: both sides change as the one that changes least

  Size of(Size image) const;
};

/// Of images that this library makes; a file may claim anything.
inline constexpr std::int64_t kMostPixels = 1 << 26;

/// How a level 0..255 becomes a number: rescale, then (x - mean) / std, all in f32.
struct Normalization {
  enum class Rescale {
    none,
    multiply,   // f32(double(level) * factor), Hugging Face's
    divide_255  // f32(level) / 255, torchvision's and timm's
  };
  Rescale rescale = Rescale::multiply;
  double factor = 1 / 255.0;
  bool normalize = true;
  std::array<float, 3> mean{0.5f, 0.5f, 0.5f}, std{0.5f, 0.5f, 0.5f};
};

/// u8 [H, W, 3] to f32 [3, H, W].
tensor::Tensor normalize(const tensor::Tensor& image, const Normalization& rule);
/// The same of a batch, u8 [N, H, W, 3] to f32 [N, 3, H, W], in operators: for models that a GPU
/// runs, which takes it from the levels. (On the host a table of 256 levels is faster.)
tensor::Tensor normalize_levels(const tensor::Tensor& levels, const Normalization& rule);

struct Preprocessing {
  bool resize = true;
  SizeRule size;
  Filter filter = Filter::bilinear;
  PassOrder order = PassOrder::pillow_12;  // of torchvision, which transformers 5 takes by default
  std::optional<Size> crop;
  CropRounding crop_rounding = CropRounding::down;
  Normalization normalization;
  bool pad = false;               // a batch to its largest image (DETR)
  std::optional<Size> pad_size;   // or to this size
  std::int64_t pad_multiple = 0;  // or, with a mask in any case, to multiples of so many pixels
};

/// What messages about an image call it where its file's name is not known.
inline constexpr const char* kImage = "the image";

/// Throws UserError where this image cannot be resized so: to no pixels, or to too many.
void check_resized(Size image, Size resized, std::string_view mending = "crop it first");

/// The size of pixel_values of an image: after the resize and the crop.
Size preprocessed_size(Size image, const Preprocessing& rule);
/// The resize and the crop: u8 [H, W, 3] to u8 [h, w, 3].
tensor::Tensor fit_levels(const tensor::Tensor& image, const Preprocessing& rule);
/// All of it: u8 [H, W, 3] to f32 [3, h, w].
tensor::Tensor preprocess(const tensor::Tensor& image, const Preprocessing& rule);

}  // namespace models

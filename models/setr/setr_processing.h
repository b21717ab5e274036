// From an image to SETR's input: OpenCV's bilinear resize within a pair of edges, and the
// normalisation on the scale 0 ... 255.
#pragma once

#include <optional>

#include "models/common/processors.h"
#include "models/setr/setr.h"

namespace models::setr {

/// mmcv's scale pair: the image becomes as large as fits a long and a short edge.
struct Scale {
  std::int64_t longest = 0, shortest = 0;
  friend bool operator==(const Scale&, const Scale&) = default;
};

/// mmcv's rescale_size.
Size rescaled_size(Size image, Scale scale);

/// The scale of the released configurations: Cityscapes (768), ADE20K (512), Pascal Context (480);
/// ADE20K's proportions for other sizes.
Scale default_scale(std::int64_t image_size);

struct SetrPreprocessing {
  bool resize = true;
  std::optional<Size> exact;  // resize to this size whatever the aspect, instead of the scale
  Scale scale;
  Normalization normalization;
};

SetrPreprocessing default_preprocessing(std::int64_t image_size);
/// Reads preprocessor_config.json; absent keys keep the defaults.
SetrPreprocessing read_preprocessing(const tensor::Json& config, std::int64_t image_size);

/// What `preprocess` makes of an image of this size.
Size preprocessed_size(Size image, const SetrPreprocessing& rule);
/// The resize: u8 [H, W, 3] to u8 [h, w, 3].
tensor::Tensor fit_levels(const tensor::Tensor& image, const SetrPreprocessing& rule);
/// u8 [N, h, w, 3] to f32 [N, 3, h, w], in operators that can be traced.
tensor::Tensor normalize_levels(const tensor::Tensor& levels, const SetrPreprocessing& rule,
                                Flavour flavour);
/// The same of one image, u8 [h, w, 3] to f32 [1, 3, h, w], on the host.
tensor::Tensor normalize_image(const tensor::Tensor& levels, const SetrPreprocessing& rule,
                               Flavour flavour);
/// Resizes and normalizes: u8 [H, W, 3] to f32 [1, 3, h, w].
tensor::Tensor preprocess(const tensor::Tensor& image, const SetrPreprocessing& rule,
                          Flavour flavour);

}  // namespace models::setr

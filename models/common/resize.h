// Resizing u8 images [height, width, channels] bit for bit as Pillow and OpenCV do, which the
// reference implementations of the models use.
#pragma once

#include "tensor/handle.h"

namespace models {

/// Pillow's filters with Pillow's numbers, which preprocessor_config.json calls "resample".
enum class Filter { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

/// PIL.Image.resize: antialiased, a horizontal pass rounded to u8, then a vertical one. (As Pillow
/// up to 12; Pillow 13 swaps the passes where that is less work, which moves some levels by 1.)
tensor::Tensor resize_pillow(const tensor::Tensor& image, std::int64_t height, std::int64_t width,
                             Filter filter = Filter::bilinear);

/// cv2.resize with INTER_LINEAR: not antialiased, 11-bit weights.
tensor::Tensor resize_opencv(const tensor::Tensor& image, std::int64_t height, std::int64_t width);

/// What centring does with an odd rest: the pixel goes after the crop, or the offset is rounded.
enum class CropRounding { down, half_to_even };  // Hugging Face's rule, torchvision's rule

/// The middle height x width; where the image is smaller, black is added.
tensor::Tensor center_crop(const tensor::Tensor& image, std::int64_t height, std::int64_t width,
                           CropRounding odd = CropRounding::half_to_even);

}  // namespace models

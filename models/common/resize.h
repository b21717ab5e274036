// Resizing u8 images [height, width, channels] bit for bit as Pillow (12 or 13) and OpenCV do,
// which the reference implementations of the models use.
#pragma once

#include "tensor/handle.h"

namespace models {

/// Pillow's filters with Pillow's numbers, which preprocessor_config.json calls "resample".
enum class Filter { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

/// Which of the two passes comes first, each rounded and clipped to u8. Pillow up to 12 and
/// torchvision begin with the horizontal one (Pillow 12 not where a picture is more than 100 times
/// as tall as wide); Pillow 13 with the vertical one where that takes more than twice as many rows
/// away as the other columns. With bicubic and lanczos, which overshoot, edges differ visibly.
enum class PassOrder { pillow_12, pillow_13 };

/// PIL.Image.resize: antialiased.
tensor::Tensor resize_pillow(const tensor::Tensor& image, std::int64_t height, std::int64_t width,
                             Filter filter = Filter::bilinear,
                             PassOrder order = PassOrder::pillow_12);

/// cv2.resize with INTER_LINEAR: not antialiased, 11-bit weights.
tensor::Tensor resize_opencv(const tensor::Tensor& image, std::int64_t height, std::int64_t width);

/// What centring does with an odd rest: the pixel goes after the crop, or the offset is rounded.
enum class CropRounding { down, half_to_even };  // Hugging Face's rule, torchvision's rule

/// The middle height x width; where the image is smaller, black is added.
tensor::Tensor center_crop(const tensor::Tensor& image, std::int64_t height, std::int64_t width,
                           CropRounding odd = CropRounding::half_to_even);

}  // namespace models

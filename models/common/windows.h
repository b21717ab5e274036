// Square windows of images [B, h, w, C], of which attention sees one at a time.
#pragma once

#include "models/common/preprocess.h"
#include "tensor/handle.h"

namespace models {

/// Zeros below and at the right of [B, h, w, C], up to multiples.
tensor::Tensor padded(const tensor::Tensor& x, std::int64_t rows, std::int64_t columns);
/// [B, h, w, C], of which the side divides h and w, to its windows [windows, side, side, C].
tensor::Tensor in_windows(const tensor::Tensor& x, std::int64_t side);
/// The image that such windows are of.
tensor::Tensor from_windows(const tensor::Tensor& windows, Size image);

}  // namespace models

// What all that samples images between their pixels share.
#pragma once

#include "tensor/handle.h"

namespace tensor {

/// The pixels of images x [N, C, H, W] at rows and columns [N, H', W'], which need not be whole:
/// [N, C, H', W'] in the places' type, of the four pixels around each place those within the image.
Tensor bilinear_pixels(const Tensor& x, const Tensor& row, const Tensor& column);

}  // namespace tensor

// The one thing that is read from EXIF data: how to turn the image.
#pragma once

#include "src/io/bytes.h"
#include "tensor/handle.h"

namespace tensor {

/// The orientation (1 to 8, EXIF 2.3 section 4.6.4) in a TIFF structure; 1 when it has none or is
/// damaged.
int exif_orientation(Bytes tiff);

/// The image [height, width, channels] turned upright, as a view.
Tensor turned_upright(const Tensor& image, int orientation);

}  // namespace tensor

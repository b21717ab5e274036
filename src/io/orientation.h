// How an image is to be turned: what EXIF data and XMP say of it, read as Pillow 13 reads them.
#pragma once

#include <optional>
#include <string>

#include "src/io/bytes.h"
#include "tensor/handle.h"

namespace tensor {

/// What a file says about its image, as found.
struct Metadata {
  std::optional<std::string> exif;  // a TIFF structure, with or without "Exif\0\0" before it
  std::string xmp;                  // XML
};

/// The orientation (1 to 8, EXIF 2.3 section 4.6.4): EXIF data that have one outrank XMP, whatever
/// it is; 1 when there is none, or one that does not exist.
int orientation_of(const Metadata& metadata);

/// The image [height, width, channels] turned upright, as a view.
Tensor turned_upright(const Tensor& image, int orientation);

}  // namespace tensor

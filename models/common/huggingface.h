// How the image processors of Hugging Face's transformers prepare pictures for models that take one
// image.
#pragma once

#include <string_view>
#include <vector>

#include "models/common/checkpoint.h"
#include "models/common/processors.h"

namespace models {

/// The classes of transformers that prepare images as `preprocess` does; `first`, which one is
/// where a file names none, stands before the others. ViTImageProcessor is that of a model that
/// takes `image`.
std::vector<ProcessorClass> huggingface_processors(Size image, std::string_view first = "ViT");
/// What ViTImageProcessor does.
Preprocessing huggingface_preprocessing(Size image);
/// What a folder's preprocessor_config.json says or, without one, `first` does.
Preprocessing huggingface_preprocessing(const Checkpoint& checkpoint, Size image,
                                        std::string_view first, bool any_size);

/// UserError, about the settings, unless the rule makes images of this size, or any is taken.
void require_image(const Preprocessing& rule, Size image, const tensor::Json& settings,
                   bool any_size);

}  // namespace models

// The vit program: classes of images.
#pragma once

#include <memory>

#include "models/common/cli.h"

namespace models::vit {

std::unique_ptr<Program> make_program();

/// The classes of logits [classes] by falling probability, at most `top` of them: a softmax, or
/// independent sigmoids. `labels` names them.
std::vector<Finding> classify(const tensor::Tensor& logits, const std::vector<std::string>& labels,
                              std::int64_t top, bool sigmoid);

/// The same of probabilities.
std::vector<Finding> best_classes(const tensor::Tensor& scores,
                                  const std::vector<std::string>& labels, std::int64_t top);

/// The image, enlarged if it is small, with a bar and a label for every class below it.
tensor::Tensor draw_classes(const tensor::Tensor& image, const std::vector<Finding>& classes);

}  // namespace models::vit

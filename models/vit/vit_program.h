// The vit program: classes of images.
#pragma once

#include <memory>

#include "models/common/cli.h"
#include "models/vit/vit_settings.h"

namespace models::vit {

std::unique_ptr<Program> make_program();

/// What logits [..., classes] stand for.
tensor::Tensor scores_of(const tensor::Tensor& logits, Scores scores);

/// The classes of scores [classes] by falling score, at most `top` of them. `labels` names them.
std::vector<Finding> best_classes(const tensor::Tensor& scores,
                                  const std::vector<std::string>& labels, std::int64_t top,
                                  bool are_shares = true);

/// The image, enlarged if it is small, with a label for every class below it, and a bar for what is
/// a probability.
tensor::Tensor draw_classes(const tensor::Tensor& image, const std::vector<Finding>& classes);

}  // namespace models::vit

// Class names, and what the numbers of classes stand for.
#pragma once

#include <string>
#include <vector>

#include "tensor/json.h"

namespace models {

/// The names of classes 0 to classes - 1: config's "id2label" {"0": "cat", ...} or "label_names"
/// ["cat", ...], which must fit, otherwise "class 0", "class 1" ...
std::vector<std::string> read_labels(const tensor::Json& config, std::int64_t classes);

/// What the classifier's outputs become for images.
enum class Scores {
  softmax,  // probabilities of classes of which an image shows one
  sigmoid,  // independent probabilities
  numbers   // as they are: of a regression
};

/// By "problem_type"; one class without it is a probability, as transformers has it.
Scores read_scores(const tensor::Json& config, std::int64_t classes);

}  // namespace models

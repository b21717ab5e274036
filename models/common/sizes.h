// --sizes: for which inputs a plan is filled ahead.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/common/preprocess.h"

namespace models {

/// What a forward pass takes: so many images of one size, as the model gets them.
struct InputSize {
  std::int64_t batch = 1;
  Size size;
  friend bool operator==(const InputSize&, const InputSize&) = default;
};

/// "480x640,800x1333,b1,b8": every height x width with every batch. Without a height and width it
/// is the `usual` one, without a batch 1. UserError on anything else.
std::vector<InputSize> parse_sizes(const std::string& text, Size usual);

/// "480x640,b8"
std::string describe(const InputSize& size);

}  // namespace models

// What the reference and the fast kernels of interpolate share.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/attrs.h"

namespace tensor {

struct Tap {
  std::int64_t place;  // along an axis of the input
  double weight;
};
using Taps = std::vector<Tap>;

/// What every place of an axis of the output is the weighted sum of. Both axes of an image are
/// resized one after the other; `attrs` are interpolate's.
std::vector<Taps> interpolation_taps(std::int64_t from, std::int64_t to, const Attrs& attrs);

}  // namespace tensor

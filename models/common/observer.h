// Observer: sees the intermediate results of a forward pass as they appear, for --hidden-states and
// the progress bar, so that a model need not keep them.
#pragma once

#include <functional>
#include <string>

#include "tensor/handle.h"

namespace models {

/// Called with the name (as `--output` writes it, "hidden_states.3") and value of each result.
using Observer = std::function<void(const std::string& name, const tensor::Tensor& value)>;

/// Tells `observe`, if there is one, and returns the value.
inline const tensor::Tensor& observed(const Observer& observe, const std::string& name,
                                      const tensor::Tensor& value) {
  if (observe) observe(name, value);
  return value;
}

}  // namespace models

// The types of some tensors.
#pragma once

#include <vector>

#include "tensor/handle.h"

namespace tensor::detail {

inline std::vector<TensorType> types_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorType> types;
  types.reserve(tensors.size());
  for (const Tensor& x : tensors) types.push_back(x.type());
  return types;
}

}  // namespace tensor::detail

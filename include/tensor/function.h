// TensorFunction: what is traced and compiled.
#pragma once

#include <functional>
#include <vector>

#include "tensor/handle.h"

namespace tensor {

using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

}  // namespace tensor

// The library's version.
#pragma once

#include <string_view>

#include "tensor/export.h"

namespace tensor {
/// "0.1.0": the version of the library that is linked (semantic versioning).
TENSOR_API std::string_view version();
}  // namespace tensor

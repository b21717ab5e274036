// Where the library keeps what it makes for itself on disk: compiled kernels, and the user's own
// log of tuning.
#pragma once

#include <string>

namespace tensor {

/// TENSOR_CACHE_DIR, else under XDG_CACHE_HOME, else in ~/.cache/tensor/kernels.
std::string cache_folder();

}  // namespace tensor

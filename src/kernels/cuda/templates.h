// The kernels' own headers, src/kernels/cuda/templates, as texts: they are part of the library.
#pragma once

#include <string>

#include "src/kernels/cuda/kernel_source.h"

namespace tensor::cuda {

/// By the names that kernels include them by.
const Headers& device_headers();

/// A checksum of all of them: another one means that kernels may take other times.
const std::string& device_headers_checksum();

}  // namespace tensor::cuda

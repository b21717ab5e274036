// The emulated NVRTC: a kernel's machine code is its own text, which the emulated driver compiles
// with g++ when it is first launched.
#pragma once

#include <optional>
#include <utility>

#include "src/kernels/cuda/driver/compiler.h"

namespace tensor::emulator {

/// Makes Compiler find it.
void install_nvrtc();

/// What was compiled into an image, and for which capability. Nothing if it does not begin as one.
std::optional<std::pair<cuda::KernelSource, int>> read_image(const char* image);

}  // namespace tensor::emulator

// A kernel's text as a program of this machine: what C++ has no words for is replaced, g++ compiles
// it with every load and store instrumented, and the result is kept in the build folder.
#pragma once

#include <string>

#include "src/kernels/cuda/driver/compiler.h"
#include "tests/cuda/emulator/kernel/gpu.h"

namespace tensor::emulator {

struct Program {
  void (*run)(void** arguments) = nullptr;
  unsigned (*sizes)(unsigned* to) = nullptr;  // of the arguments in bytes; how many
  emulated::Gpu** gpu = nullptr;
  const emulated::Here** here = nullptr;
  std::string path;
  const char* image_begin = nullptr;  // where it lies in memory
  const char* image_end = nullptr;

  /// "gemm_sm90.h:120 (multiply)" of an address in the code.
  std::string place(const void* address) const;
};

/// Compiles and loads the function `entry`, once a process for each text. InternalError with the
/// compiler's messages. `capability` is 90 for sm_90.
const Program& program_of(const cuda::KernelSource& source, const std::string& entry,
                          int capability);

/// The text with shared variables as the emulator has them.
std::string for_host(const std::string& text);

}  // namespace tensor::emulator

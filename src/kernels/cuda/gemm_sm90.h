// Products on Hopper: the text of a kernel for a schedule, and its launch.
#pragma once

#include <string>

#include "src/kernels/cuda/device.h"

namespace tensor::cuda {

enum class Element { f16, bf16 };

/// See device/gemm_sm90.h.
struct GemmSchedule {
  int tokens = 128, features = 128;  // of a tile
  int stages = 4;
  int groups = 1;  // of 64 rows
  bool swapped = false;

  /// Why the kernel cannot be built so, empty if it can: `shared_bytes` is what a block may have.
  std::string fault(std::int64_t shared_bytes) const;
  std::int64_t needed_shared_bytes() const;  // of dynamic shared memory
  int threads() const;
};

/// What is done to a sum before it is stored: C++ for a functor's members and its call operator.
struct Epilogue {
  std::string name;     // in the kernel's name: "bias_gelu"
  std::string members;  // "const Element* bias;"
  std::string result;   // of float sum, int token, int feature: "sum + float(bias[feature])"
};

struct GemmKernel {
  KernelSource source;
  std::string name;
};

/// The kernel's parameters are the maps of weights, inputs and outputs, the epilogue, and the
/// numbers of tokens, features and their depth.
GemmKernel gemm_sm90(const GemmSchedule& schedule, Element element, const Epilogue& epilogue);

}  // namespace tensor::cuda

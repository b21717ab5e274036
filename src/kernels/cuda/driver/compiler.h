// Compiler: CUDA C++ to machine code at run time, by NVRTC. It needs neither a GPU nor a driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/kernels/cuda/kernel_source.h"

namespace tensor::cuda {

/// Machine code for one architecture, and what the compiler said: warnings, registers, spills.
struct Cubin {
  std::vector<std::byte> code;
  std::string log;
};

class Compiler {
 public:
  /// The process's compiler. UserError naming what was tried when there is no NVRTC: looked for
  /// under the file named by TENSOR_NVRTC, then in CUDA_HOME, the system's folders and
  /// /usr/local/cuda.
  static const Compiler& get();

  /// 13000 for 13.0.
  int version() const { return version_; }
  /// 75, 80, 86, ...: what it can compile for.
  const std::vector<int>& architectures() const { return architectures_; }

  /// `architecture` is "sm_75", "sm_90a", ... InternalError with the compiler's messages when the
  /// text does not compile: kernels are this library's own.
  Cubin compile(const KernelSource& source, const std::string& architecture) const;

  /// How many texts this process has compiled.
  static std::int64_t compilations();

  /// Everything that decides the result of `compile`, as one text.
  std::string key(const KernelSource& source, const std::string& architecture) const;

 private:
  struct Api;
  Compiler();
  const Api* api_;
  int version_ = 0;
  std::vector<int> architectures_;
};

}  // namespace tensor::cuda

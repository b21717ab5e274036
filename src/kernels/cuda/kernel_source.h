// What is compiled to a kernel, and how the kernel is launched: data that needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tensor::cuda {

/// Of device memory.
using Address = unsigned long long;

/// How the tensor memory accelerator finds a tensor: opaque, passed to kernels by value.
struct alignas(64) TensorMapBytes {
  std::uint64_t words[16];
};

/// What a kernel is compiled from.
struct KernelSource {
  std::string name;  // in messages: "gemm_197x768x768.cu"
  std::string text;
  std::vector<std::pair<std::string, std::string>> headers = {};  // name as included, text
  std::vector<std::string> options = {};  // besides architecture and language

  /// The text with its headers in place of their includes: what can be compiled as it stands.
  std::string whole_text() const;
};

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  Grid grid = {}, block = {};
  unsigned shared_bytes = 0;  // besides those declared in the kernel
  unsigned cluster = 1;       // neighbouring blocks along x that run together
  /// May start before the kernel ahead ends, and waits for it by itself (griddepcontrol.wait).
  bool overlaps_previous = false;
};

}  // namespace tensor::cuda

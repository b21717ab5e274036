// Range: a named stretch of time for NVIDIA's profilers (NVTX).
#pragma once

#include <string>

namespace tensor::cuda {

/// Open as long as it lives, on the calling thread. Costs nothing where NVTX's library
/// (libnvToolsExt, or libnvtx3interop of CUDA 13) cannot be opened.
class Range {
 public:
  explicit Range(const std::string& name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace tensor::cuda

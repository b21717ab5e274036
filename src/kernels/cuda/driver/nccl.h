// NCCL's interface as far as it is used, declared here as the CUDA driver's is (driver.h).
#pragma once

#include <cstddef>

#include "src/core/shared_library.h"
#include "src/kernels/cuda/driver/communicator.h"
#include "src/kernels/cuda/driver/driver.h"

namespace tensor::cuda {

/// The functions used, by what they do. A result of 0 is success.
struct Nccl {
  /// Opened once. UserError, naming what was tried, when there is none.
  static const Nccl& get();

  SharedLibrary library;
  template <class... T>
  using Call = int (*)(T...);
  /// A communicator for each of these devices, all in this process.
  Call<CommunicatorHandle**, int, const int*> connect =
      library.function<int(CommunicatorHandle**, int, const int*)>("ncclCommInitAll");
  Call<const void*, void*, std::size_t, int, int, CommunicatorHandle*, StreamHandle*> all_reduce =
      library.function<int(const void*, void*, std::size_t, int, int, CommunicatorHandle*,
                           StreamHandle*)>("ncclAllReduce");
  Call<CommunicatorHandle*> abort = library.function<int(CommunicatorHandle*)>("ncclCommAbort");
  const char* (*error_text)(int) = library.function<const char*(int)>("ncclGetErrorString");
};

constexpr int kNcclFloat32 = 7, kNcclFloat64 = 8;  // ncclDataType_t
constexpr int kNcclSum = 0;                        // ncclRedOp_t

}  // namespace tensor::cuda

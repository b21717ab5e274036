// Memory and streams of GPUs, kept for the next user: what src/core/device_seam.h asks for.
#pragma once

#include "src/core/device_seam.h"
#include "src/core/pool.h"
#include "src/kernels/cuda/driver/device.h"

namespace tensor::detail {

inline std::byte* pointer(cuda::Address address) { return reinterpret_cast<std::byte*>(address); }
inline cuda::Address address_of(const void* device_pointer) {
  return reinterpret_cast<cuda::Address>(device_pointer);
}

/// A tensor over memory of a device, which `storage` keeps, its first element at `data`.
Tensor device_tensor(const std::shared_ptr<Storage>& storage, cuda::Address data,
                     const Shape& shape, DType dtype, const Strides& strides);

/// Lets go of what eager operators keep for their next calls, for when memory is short. Whether
/// there was anything.
bool forget_eager_programs();

/// A stream of the device for one user at a time.
Pool<cuda::Stream>::Lease take_stream(cuda::Device& device);

}  // namespace tensor::detail

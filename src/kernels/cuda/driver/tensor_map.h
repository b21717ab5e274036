// Tensor maps as the driver makes them for kernels.
#pragma once

#include "src/kernels/cuda/driver/device.h"
#include "src/kernels/cuda/tensor_map.h"

namespace tensor::cuda {

/// The map that a kernel takes, of memory at `base` + view.memory.bytes. InternalError with the
/// reason when there is a fault.
TensorMapBytes encode(Device& device, const TensorMapOf& view, Address base);

}  // namespace tensor::cuda

// Tensor maps: what the tensor memory accelerator needs to know of a tensor, checked and encoded.
#pragma once

#include <string>

#include "src/kernels/cuda/family.h"

namespace tensor::cuda {

constexpr int kMostBoxSide = 256;  // elements

/// Why the accelerator cannot take a view (CUDA driver API, "Tensor Map Object Management"), empty
/// if it can. `base` is the address that the view's memory is counted from.
std::string fault(const TensorMapOf& view, Address base);

/// How many bytes of shared memory one box takes, bytes outside of the tensor included.
std::int64_t box_bytes(const TensorMapOf& view);

/// The map that a kernel takes, of memory at `base` + view.memory.bytes. InternalError with the
/// reason when there is a fault.
TensorMapBytes encode(Device& device, const TensorMapOf& view, Address base);

/// A dense matrix of 16-bit elements, read or written in swizzled boxes of 64 columns. Rows are
/// multiples of 8 elements.
TensorMapOf swizzled_boxes(DType dtype, std::int64_t rows, std::int64_t columns, int box_rows,
                           Pointer memory = {});

}  // namespace tensor::cuda

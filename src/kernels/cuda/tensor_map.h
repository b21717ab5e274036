// Tensor maps: what the tensor memory accelerator needs to know of a tensor, checked.
#pragma once

#include <string>

#include "src/kernels/cuda/lowered.h"

namespace tensor::cuda {

constexpr int kMostBoxSide = 256;  // elements

/// The driver's number of an element type (CUtensorMapDataType), -1 where there is none.
int map_type(DType dtype);

/// Why the accelerator cannot take a view (CUDA driver API, "Tensor Map Object Management"), empty
/// if it can. `base` is the address that the view's memory is counted from.
std::string fault(const TensorMapOf& view, Address base);

/// How many bytes of shared memory one box takes, bytes outside of the tensor included.
std::int64_t box_bytes(const TensorMapOf& view);

/// A dense matrix of 16-bit elements, read or written in swizzled boxes of 64 columns. Rows are
/// multiples of 8 elements.
TensorMapOf swizzled_boxes(DType dtype, std::int64_t rows, std::int64_t columns, int box_rows,
                           Pointer memory = {});

}  // namespace tensor::cuda

// gemm: the product of two matrices, which matmul and the convolutions share.
#pragma once

#include "src/core/view.h"

namespace tensor {

/// c = a · b for a [m, k], b [k, n] and c [m, n] of one element type, with any strides; c overlaps
/// neither a nor b. f32 and f64 go through Eigen. f16 and bf16 are computed in f32 and rounded
/// once. Integers wrap around, and bool is the logical or of ands, as in NumPy. With k = 0 every
/// element of c is 0.
void gemm(const ConstView& a, const ConstView& b, const View& c);

/// Whether gemm reads a matrix of these extents and strides in place: one of the strides is 1.
bool gemm_reads_in_place(const Shape& shape, const Strides& strides);

}  // namespace tensor

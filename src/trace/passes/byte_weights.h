// Weights of products in eight bits (src/ops/eight_bits.h), from those in float32.
#pragma once

#include <functional>
#include <vector>

#include "src/ops/eight_bits.h"
#include "tensor/handle.h"

namespace tensor {

/// What quantize() does, faster where the caller knows how.
using Quantize = std::function<float(const float* from, std::int64_t count, std::int8_t* to)>;

/// The filters of a convolution as a matrix of a row for everything that they lie on and a column
/// for each; other weights as they are.
Tensor matrix_of(const Tensor& weights);
/// The bytes of a matrix in strips, and the scales of its columns, where rows are multiplied by
/// `factors` first (undefined: as they are).
Tensor bytes_of(const Tensor& weights, const Tensor& factors, const Quantize& quantized);
Tensor scales_of(const Tensor& weights, const Tensor& factors, const Quantize& quantized);
/// The largest magnitude of every row of a matrix; not finite where one of them is not.
std::vector<float> largest_of_rows(const Tensor& weights);
/// The sums of the bytes of each column; those beyond the depth are zeros.
Tensor sums_of_columns(const Tensor& strips, std::int64_t columns);

}  // namespace tensor

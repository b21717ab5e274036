// Lowers the precision of products.
#pragma once

#include <functional>

#include "src/trace/graph.h"
#include "tensor/ops.h"

namespace tensor {

/// Casts the operands of every f32 matmul and convolution to `dtype` (bf16 or f16) and the result
/// back. Casts stand where values are computed, before any view, so that fusion can store a value
/// in `dtype` at once; constants are cast here. Everything else (sums, softmax, layer_norm
/// statistics, the residual stream) stays float32. Test: tests/trace/passes_test.cpp.
/// `converted` does what astype does, faster where the caller knows how.
Graph cast_products(const Graph& graph, DType dtype,
                    const std::function<Tensor(const Tensor&, DType)>& converted = &astype);

/// Marks every f32 matmul and convolution: Tensor Cores may round its operands to tf32. The
/// attribute is tf32 = true; reference operators know nothing of it. Test: the same.
Graph round_products(const Graph& graph);

}  // namespace tensor

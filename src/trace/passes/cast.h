// Lowers the precision of products.
#pragma once

#include <functional>

#include "src/trace/graph.h"
#include "tensor/ops.h"

namespace tensor {

/// Casts the operands of every f32 matmul and convolution to `dtype` (bf16 or f16) and the result
/// back. Casts stand where values are computed, before any view, so that fusion can store a value
/// in `dtype` at once; constants are cast here. Everything else (sums, softmax, layer_norm
/// statistics, the residual stream) stays float32. Test: tests/trace/cast_*_test.cpp.
/// `converted` does what astype does, faster where the caller knows how.
Graph cast_products(const Graph& graph, DType dtype,
                    const std::function<Tensor(const Tensor&, DType)>& converted = &astype);

/// After cast_products(graph, dtype): stores what products round to eight bits in `dtype`, if all
/// that read it are products: half of the bytes, and less than the steps of eight bits. Test:
/// tests/trace/cast_rows_test.cpp.
Graph cast_rows(const Graph& graph, DType dtype);

/// After cast_products(graph, dtype): stores the residual stream in `dtype`, too. A value that is
/// added to what a product leads to, and read elsewhere as well, is rounded to `dtype` for all its
/// readers, and so is the sum where it is normalised or read more than once. Sums are added in
/// float32 before they are rounded; what the caller gets is not. Test:
/// tests/trace/cast_residuals_test.cpp.
Graph cast_residuals(const Graph& graph, DType dtype);

/// After that and eliminate_common_and_dead: every operator that reads a rounded value in f32 has a
/// cast of its own. Of a cast that several share, one kernel would have to store the f32 value for
/// the others. Test: the same.
Graph split_casts(const Graph& graph, DType dtype);

/// After cast_products(graph, dtype): a layer_norm of few rows that come from a product and that
/// products by constants alone read, in `dtype` and as their left operand, normalises its input
/// rounded to `dtype` by sums of that: layer_norm(x, w, b) becomes
/// layer_norm_by_sums(f32(y), w, b, row_sums(y)) with y = dtype(x). The kernel that computes x
/// stores it twice (once, if cast_residuals rounded it) and adds up its rows, and the product takes
/// y as it is and puts mean and deviation right behind itself; of few rows, both together cost less
/// than a pass of its own.
///
/// The statistics stay float32, and are those of the rounded values. A rounding moves a normalised
/// value by eps |x| / deviation, where the one that cast_products makes behind the layer_norm moves
/// it by eps |x - mean| / deviation: that is the same but where the mean of a row is many
/// deviations away from 0. f16 has two limits that bf16 has not: beyond 65504 a value becomes
/// infinite and its row NaN (as happens to results of products, but sums of residuals grow larger
/// than those), and rows that deviate by less than 1e-4 or so lose digits. Test:
/// tests/trace/cast_norms_test.cpp.
Graph cast_norms(const Graph& graph, DType dtype);

/// Marks every f32 matmul and convolution: Tensor Cores may round its operands to tf32. The
/// attribute is tf32 = true; reference operators know nothing of it. Test:
/// tests/trace/passes_test.cpp.
Graph round_products(const Graph& graph);

}  // namespace tensor

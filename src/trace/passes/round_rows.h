// Rows of products in eight bits, where kernels that make rows round them.
#pragma once

#include "src/trace/graph.h"

namespace tensor {

/// After quantize_products, for GPUs: every quantized_matmul of floating rows x becomes one of rows
/// of i8 with scales, which operators make by the definition in src/ops/eight_bits.h:
///
///   largest = maximum(max(abs(x)), 2^-100) of each row
///   rows = i8(round(x * (127 / largest))), scales = largest / 127
///
/// so that fusion lets the kernel that makes x round it, too: a product reads eight bits then. An
/// infinity makes 0 * 127 / largest of all others and NaN of itself, which i8 has as 0; the scale
/// is infinite, or NaN where x has one, so that results are NaN as the definition says. Test:
/// tests/trace/round_rows_test.cpp.
Graph round_rows(const Graph& graph);

}  // namespace tensor

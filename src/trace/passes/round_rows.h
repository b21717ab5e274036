// Rows of products in eight bits, where kernels that make rows round them.
#pragma once

#include <optional>
#include <string>
#include <vector>

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

/// x as bytes by one scale: i8(round(maximum(x * (1 / scale), -127))), where what exceeds 127
/// becomes that as it becomes i8, an infinity too, and NaN 0.
ValueId add_rounding(Graph& to, ValueId x, float scale, const std::string& where);
/// The operators of add_rounding, from the first to the last.
struct Rounding {
  ValueId x = -1, scaled = -1, bounded = -1, rounded = -1, bytes = -1;
  float inverse = 1;
  std::vector<ValueId> nodes() const { return {scaled, bounded, rounded, bytes}; }
};
/// Of bytes that add_rounding made; nullopt of any other value.
std::optional<Rounding> rounding_of(const Graph& graph, ValueId bytes);

}  // namespace tensor

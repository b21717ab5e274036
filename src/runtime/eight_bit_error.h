// What eight bits add to a product's result, for reports.
#pragma once

#include "src/core/view.h"
#include "src/trace/graph.h"

namespace tensor {

/// The error that rounding is expected to add to the results of a quantized_matmul of these rows,
/// as a share of the results (both as root mean squares): each number of a row and each weight is
/// off by up to half a step, its scale, evenly, so by scale / sqrt(12). Of many rows a few are
/// looked at. 0 where the results are. Test: tests/runtime/eight_bit_error_test.cpp.
double eight_bit_error(const Graph& graph, ValueId product, const ConstView& rows);

}  // namespace tensor

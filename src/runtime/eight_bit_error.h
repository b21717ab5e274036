// What eight bits add to a product's result, for reports.
#pragma once

#include <vector>

#include "src/core/view.h"
#include "src/runtime/program.h"

namespace tensor {

/// The error that rounding is expected to add to the results of a quantized_matmul of these rows,
/// as a share of the results (both as root mean squares): each number of a row and each weight is
/// off by up to half a step, its scale, evenly, so by scale / sqrt(12). Of many rows a few are
/// looked at. 0 where the results are. Test: tests/runtime/eight_bit_error_test.cpp.
double eight_bit_error(const Graph& graph, ValueId product, const ConstView& rows);

/// The same of every step of a program, in a run; 0 of those without such a product.
std::vector<double> added_errors(const detail::Program& program, const std::vector<Tensor>& inputs);
/// The quantized_matmul of a step, -1 where it has none.
ValueId quantized_product(const detail::Program& program, std::size_t step);

}  // namespace tensor

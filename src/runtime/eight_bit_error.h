// What eight bits add to a product's result, for reports.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/view.h"
#include "src/runtime/program.h"

namespace tensor {

/// The error that rounding is expected to add to the results of a quantized_matmul of these rows,
/// as a share of the results (both as root mean squares): each number of a row and each weight is
/// off by up to half a step, its scale, evenly, so by scale / sqrt(12). Of many rows a few are
/// looked at. 0 where the results are. Of rows of bytes by one scale the step is 1: what it bounds
/// is not known any more. Test: tests/runtime/eight_bit_error_test.cpp.
double eight_bit_error(const Graph& graph, ValueId product, const ConstView& rows);

/// The same of every step of a program, in a run; 0 of those without such a product.
std::vector<double> added_errors(const detail::Program& program, const std::vector<Tensor>& inputs);
/// The product of bytes of a step, -1 where it has none.
ValueId quantized_product(const detail::Program& program, std::size_t step);
/// Whether its rows were rounded by one scale for all of them, not by one for every row.
bool is_by_one_scale(const Graph& graph, ValueId product);
/// Its name as reports have it. UserError from `who` where it has none.
const std::string& name_of_product(const Graph& graph, ValueId product, std::string_view who);

/// Runs a program once, and shows the rows (of a convolution: the images) of all such products. One
/// whose memory is not the host's shows none.
using ShowRows = std::function<void(std::size_t step, ValueId product, const ConstView& rows)>;
void watch_products(const detail::Program& program, const std::vector<Tensor>& inputs,
                    const ShowRows& show);

}  // namespace tensor

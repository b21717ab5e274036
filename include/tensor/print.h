// How tensors are printed.
#pragma once

#include "tensor/export.h"

namespace tensor {

/// numpy.set_printoptions, with its defaults. Integers and bool have no precision, and a 0-d tensor
/// is printed with all its digits whatever the precision.
struct PrintOptions {
  int precision = 8;     ///< the most digits behind the point
  int line_width = 75;   ///< characters in a line
  int threshold = 1000;  ///< with more elements, the middle is left out
  int edge_items = 3;    ///< how many are then left at either end of an axis
};

/// For all tensors that are printed from now on, by any thread: one that is being printed is
/// finished as it began. Options that are not named take their defaults. UserError on a negative
/// precision or threshold, and on a line_width or edge_items below 1.
TENSOR_API void set_print_options(const PrintOptions& options);
/// The options in use.
TENSOR_API PrintOptions print_options();

}  // namespace tensor

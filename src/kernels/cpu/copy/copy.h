// copy_kernel: a value from one layout to another, for outputs that are views.
#pragma once

#include "src/kernels/cpu/kernel.h"

namespace tensor::cpu {

/// Its operands are the value's first element in the layout `from`, and in row-major order.
std::unique_ptr<Kernel> copy_kernel(const Layout& from, DType dtype, int threads);

}  // namespace tensor::cpu

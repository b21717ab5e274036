// The kernel of a product: blocks of sums, with whatever elementwise operators follow applied while
// they are in the cache.
#pragma once

#include "src/kernels/cpu/product/match.h"
#include "src/kernels/cpu/product/strips.h"

namespace tensor::cpu {

std::unique_ptr<Kernel> product_kernel(const LaidOutGraph& laid, const Group& group,
                                       const AnchoredProduct& product, const Machine& machine,
                                       const Unit& unit);

}  // namespace tensor::cpu

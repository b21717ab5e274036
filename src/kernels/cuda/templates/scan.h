// Running sums and products.
#pragma once

#include "numbers.h"

namespace tensor::device {

/// Of the lanes up to this one; all lanes of a warp call it.
template <class A>
inline A running_sum(A x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const A before = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x = plus(x, before);
  }
  return x;
}
template <class A>
inline A running_product(A x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const A before = __shfl_up_sync(0xffffffffu, x, step);
    if (lane >= step) x = times(before, x);
  }
  return x;
}

}  // namespace tensor::device

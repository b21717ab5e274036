// Strided loops: walks several tensors of one shape in step, handing runs of the innermost axis to
// a kernel. This is the shape of NumPy's ufunc loops: one small kernel an operator and type, one
// iteration scheme for all.
#pragma once

#include "src/core/view.h"

namespace tensor {

/// data[0] is the output, data[1...] the inputs; `strides` are in bytes.
using InnerLoop = void (*)(std::byte* const* data, const std::int64_t* strides, std::int64_t count);

/// Runs `inner` over `out`'s shape; the inputs are broadcast to it. Adjacent axes that can be
/// walked as one are merged.
void run_strided(const View& out, std::span<const ConstView> in, InnerLoop inner);

/// Calls body(position...) with the element offsets of every index of `shape` under each of the
/// given strides.
template <class Body, class... S>
void for_each_index(const Shape& shape, Body&& body, const S&... strides) {
  constexpr std::size_t kCount = sizeof...(S);
  const Strides* all[kCount] = {&strides...};
  std::int64_t offset[kCount] = {};
  if (num_elements(shape) == 0) return;
  Dims index = Dims::filled(shape.rank(), 0);
  while (true) {
    [&]<std::size_t... K>(std::index_sequence<K...>) { body(offset[K]...); }
    (std::make_index_sequence<kCount>());
    int axis = shape.rank() - 1;
    for (; axis >= 0; --axis) {
      for (std::size_t k = 0; k < kCount; ++k) offset[k] += (*all[k])[axis];
      if (++index[axis] < shape[axis]) break;
      for (std::size_t k = 0; k < kCount; ++k) offset[k] -= (*all[k])[axis] * shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace tensor

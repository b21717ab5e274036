// View: the strided memory that a kernel reads or writes, without ownership.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "src/core/storage.h"

namespace tensor {

/// Whether elements of these strides lie row-major without gaps.
bool is_contiguous(const Shape& shape, const Strides& strides);

template <class Byte>
struct BasicView {
  Byte* data = nullptr;  // the first element
  DType dtype = f32;
  Shape shape;
  Strides strides;  // in elements

  template <class T>
  auto* as() const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;
    return reinterpret_cast<Pointer>(data);
  }
  int rank() const { return shape.rank(); }
  bool is_contiguous() const;
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

/// What a kernel reads from x.
ConstView const_view(const Tensor& x);
/// What a kernel writes to x; no check of read_only (kernels write fresh outputs).
View mutable_view(const Tensor& x);

/// UserError unless every byte is 0 or 1: with another, a bool and its negation may both be true.
void check_bools(std::string_view where, const std::byte* data, const Shape& shape,
                 const Strides& strides);

/// Strides of x read as `shape`, with 0 along every broadcast axis. The shapes must fit.
Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& shape);

/// Axes by falling stride: in this order a loop over all of them walks along memory.
Dims memory_order(const Strides& strides);
/// The same elements, the axes in another order.
template <class Byte>
BasicView<Byte> permuted(const BasicView<Byte>& x, const Dims& order) {
  BasicView<Byte> result{x.data, x.dtype, {}, {}};
  for (const auto axis : order) {
    result.shape.push_back(x.shape[static_cast<int>(axis)]);
    result.strides.push_back(x.strides[static_cast<int>(axis)]);
  }
  return result;
}

}  // namespace tensor

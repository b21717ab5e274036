// The methods of Tensor that are operators.
#include "src/ops/promote.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace tensor {

IndexedTensor Tensor::operator[](const char* index) const {
  return IndexedTensor(*this, parse_index(index));
}

RowIterator Tensor::begin() const {
  if (rank() == 0)
    fail("iteration", "got a 0-d tensor (", dtype(),
         "), which has no rows: read its number with item(), or all elements of any tensor with ",
         "elements<T>()");
  return {*this, 0};
}
RowIterator Tensor::end() const { return {*this, shape(0)}; }

Tensor Tensor::reshape(const Shape& shape) const { return tensor::reshape(*this, shape); }
Tensor Tensor::transpose() const { return tensor::transpose(*this); }
Tensor Tensor::transpose(const Dims& axes) const { return tensor::transpose(*this, axes); }
Tensor Tensor::swapaxes(int a, int b) const { return tensor::swapaxes(*this, a, b); }
Tensor Tensor::expand_dims(int axis) const { return tensor::expand_dims(*this, axis); }
Tensor Tensor::squeeze(const Axes& axis) const { return tensor::squeeze(*this, axis); }
Tensor Tensor::flatten() const { return apart(tensor::reshape(*this, {-1}), *this); }
Tensor Tensor::astype(DType dtype) const { return tensor::astype(*this, dtype); }
Tensor Tensor::copy() const { return tensor::copy(*this); }

Tensor Tensor::sum(const Axes& axis, bool keepdims) const {
  return tensor::sum(*this, axis, keepdims);
}
Tensor Tensor::mean(const Axes& axis, bool keepdims) const {
  return tensor::mean(*this, axis, keepdims);
}
Tensor Tensor::prod(const Axes& axis, bool keepdims) const {
  return tensor::prod(*this, axis, keepdims);
}
Tensor Tensor::max(const Axes& axis, bool keepdims) const {
  return tensor::max(*this, axis, keepdims);
}
Tensor Tensor::min(const Axes& axis, bool keepdims) const {
  return tensor::min(*this, axis, keepdims);
}
Tensor Tensor::var(const Axes& axis, bool keepdims, double ddof) const {
  return tensor::var(*this, axis, keepdims, ddof);
}
Tensor Tensor::std(const Axes& axis, bool keepdims, double ddof) const {
  return tensor::std(*this, axis, keepdims, ddof);
}
Tensor Tensor::any(const Axes& axis, bool keepdims) const {
  return tensor::any(*this, axis, keepdims);
}
Tensor Tensor::all(const Axes& axis, bool keepdims) const {
  return tensor::all(*this, axis, keepdims);
}
Tensor Tensor::argmax(const Axes& axis, bool keepdims) const {
  return tensor::argmax(*this, axis, keepdims);
}
Tensor Tensor::argmin(const Axes& axis, bool keepdims) const {
  return tensor::argmin(*this, axis, keepdims);
}
Tensor Tensor::cumsum(int axis) const { return tensor::cumsum(*this, axis); }
Tensor Tensor::argsort(int axis) const { return tensor::argsort(*this, axis); }
Tensor Tensor::clip(const Tensor& low, const Tensor& high) const {
  return tensor::clip(*this, low, high);
}
Tensor Tensor::round() const { return tensor::round(*this); }
Tensor Tensor::dot(const Tensor& other) const { return tensor::dot(*this, other); }
Tensor Tensor::take(const Tensor& indices, int axis) const {
  return tensor::take(*this, indices, axis);
}
Tensor Tensor::repeat(std::int64_t repeats, int axis) const {
  return tensor::repeat(*this, repeats, axis);
}

}  // namespace tensor

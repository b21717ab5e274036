// The methods of Tensor that are operators.
#include "src/ops/promote.h"
#include "tensor/index.h"
#include "tensor/ops.h"

namespace tensor {

IndexedTensor Tensor::operator[](const char* index) const {
  return IndexedTensor(*this, parse_index(index));
}

Tensor Tensor::reshape(const Shape& shape) const { return tensor::reshape(*this, shape); }
Tensor Tensor::transpose() const { return tensor::transpose(*this); }
Tensor Tensor::transpose(const Dims& axes) const { return tensor::transpose(*this, axes); }
Tensor Tensor::swapaxes(int a, int b) const { return tensor::swapaxes(*this, a, b); }
Tensor Tensor::expand_dims(int axis) const { return tensor::expand_dims(*this, axis); }
Tensor Tensor::squeeze() const { return tensor::squeeze(*this); }
Tensor Tensor::flatten() const { return apart(tensor::reshape(*this, {-1}), *this); }
Tensor Tensor::astype(DType dtype) const { return tensor::astype(*this, dtype); }
Tensor Tensor::copy() const { return tensor::copy(*this); }

}  // namespace tensor

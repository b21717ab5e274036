// Tensors of the C interface.
#pragma once

#include <mutex>

#include "models/c/handles.h"
#include "tensor/handle.h"

namespace models::c {

/// A tensor, and once somebody wants its elements, the same in row-major order.
struct TensorObject {
  explicit TensorObject(tensor::Tensor x) : value(std::move(x)) {}
  const tensor::Tensor value;
  std::once_flag is_ordered = {};
  tensor::Tensor ordered = {};
};
using Tensors = Handles<TensorObject, tc_tensor, Kind::tensor>;

tc_tensor* handle_of(tensor::Tensor x);
/// Type and extents as the functions of both kinds return them: any pointer may be null. An unset
/// shape is any rank.
void write_type(tensor::DType dtype, const tensor::Shape* shape, tc_dtype* dtype_out, int* rank,
                std::int64_t* extents, std::size_t capacity);

}  // namespace models::c

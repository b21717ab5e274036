// Type promotion of an operator's inputs: weak scalars take the type of the tensors beside them.
#pragma once

#include <span>
#include <string_view>

#include "tensor/handle.h"

namespace tensor {

/// numpy.result_type with Python scalars: tensors promote among themselves, C++ numbers only raise
/// the kind. Throws UserError when an integer does not fit the type that results.
DType result_type(std::span<const Tensor> inputs, std::string_view where);

/// The same for an operator that is defined on floating types only; throws UserError on any other.
DType floating_result_type(std::span<const Tensor> inputs, std::string_view where);

/// The smallest floating type for NumPy's floating functions of an integer type: bool, u8, i8 ->
/// f16; i16 -> f32; i32, i64 -> f64; floating types stay.
DType floating_type(DType dtype);

/// x as `dtype` (x itself when it already is).
Tensor cast(const Tensor& x, DType dtype);

}  // namespace tensor

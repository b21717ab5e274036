// Type promotion of an operator's inputs: weak scalars take the type of the tensors beside them.
#pragma once

#include <span>
#include <string_view>

#include "tensor/handle.h"

namespace tensor {

/// numpy.result_type with Python scalars: tensors promote among themselves, C++ numbers only raise
/// the kind. Throws UserError when an integer does not fit the type that results.
DType result_type(std::span<const Tensor> inputs, std::string_view where);

/// The same for comparisons, which are exact: i64 where a number does not fit.
DType comparison_type(std::span<const Tensor> inputs);

/// -1 or 1 where x is a C++ integer below or above what the integer type `dtype` holds, else 0.
int out_of_range(const Tensor& x, DType dtype);

/// UserError where x is a C++ integer that does not fit into the integer type `dtype`: it would
/// wrap silently. `mend` ends the message.
void check_fits(const Tensor& x, DType dtype, std::string_view where, std::string_view mend);

/// The same for an operator that is defined on floating types only; throws UserError on any other.
DType floating_result_type(std::span<const Tensor> inputs, std::string_view where);

/// The smallest floating type for NumPy's floating functions of an integer type: bool, u8, i8 ->
/// f16; i16 -> f32; i32, i64 -> f64; floating types stay.
DType floating_type(DType dtype);

/// The distance from 1 to the next number of a floating type; of others, float64's.
double epsilon_of(DType dtype);

/// The type to compute compositions in: several roundings to a 16-bit type would add up.
inline DType wide_type(DType dtype) { return item_size(dtype) == 2 ? f32 : dtype; }

/// x as `dtype` (x itself when it already is).
Tensor cast(const Tensor& x, DType dtype);

/// `result`, copied where it lies in x's memory: for functions that always copy in NumPy. What is
/// traced is never written, and stays as it is.
Tensor apart(const Tensor& result, const Tensor& x);

}  // namespace tensor

// The names that safetensors gives to element types.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace tensor {

inline constexpr std::string_view kSafetensorsDtypes = "BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64";

/// The element type of that name, if this library holds it.
std::optional<DType> safetensors_dtype(std::string_view name);
/// Whether the format has that name for a type that this library does not hold.
bool is_foreign_safetensors_dtype(std::string_view name);
std::string_view safetensors_name(DType dtype);

}  // namespace tensor

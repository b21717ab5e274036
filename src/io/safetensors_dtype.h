// The names that safetensors gives to element types.
#pragma once

#include <optional>
#include <string_view>

#include "src/io/widened.h"

namespace tensor {

inline constexpr std::string_view kSafetensorsDtypes = "BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64";

/// The element type of that name, if this library holds it.
std::optional<DType> safetensors_dtype(std::string_view name);
/// Likewise of numbers that are read as those of a wider type.
std::optional<Narrow> narrow_safetensors_dtype(std::string_view name);
/// The bits of an element, where the format has that name for a type that this library does not
/// hold.
std::optional<int> foreign_safetensors_bits(std::string_view name);
std::string_view safetensors_name(DType dtype);

}  // namespace tensor

// Numbers of types that files have and tensors do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/handle.h"

namespace tensor {

/// A tensor takes them as the least type that has them all: i32, i64, i64 (below 2^63), f16, f16.
/// f8_e4m3 is the one without infinities ("fn"), f8_e5m2 the one with them (Micikevicius et al.,
/// FP8 formats for deep learning).
enum class Narrow : std::uint8_t { u16, u32, u64, f8_e4m3, f8_e5m2 };

std::string_view name(Narrow type);
std::int64_t item_size(Narrow type);
DType widened_dtype(Narrow type);

/// The numbers that `bytes` hold, little-endian and of any alignment. ForeignMember naming `where`
/// on one of 2^63 or more.
Tensor widened(Narrow type, std::span<const std::byte> bytes, const Shape& shape,
               const std::string& where);

}  // namespace tensor

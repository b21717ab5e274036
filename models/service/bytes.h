// The elements of a tensor as bytes, whatever their type.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/handle.h"

namespace models::service {

/// All elements in a row. UserError unless contiguous.
inline std::span<const std::byte> bytes_of(const tensor::Tensor& x) {
  switch (x.dtype()) {
    case tensor::boolean:
      return std::as_bytes(x.span<bool>());
    case tensor::u8:
      return std::as_bytes(x.span<std::uint8_t>());
    case tensor::i8:
      return std::as_bytes(x.span<std::int8_t>());
    case tensor::i16:
      return std::as_bytes(x.span<std::int16_t>());
    case tensor::i32:
      return std::as_bytes(x.span<std::int32_t>());
    case tensor::i64:
      return std::as_bytes(x.span<std::int64_t>());
    case tensor::f16:
      return std::as_bytes(x.span<tensor::Float16>());
    case tensor::bf16:
      return std::as_bytes(x.span<tensor::BFloat16>());
    case tensor::f32:
      return std::as_bytes(x.span<float>());
    case tensor::f64:
      return std::as_bytes(x.span<double>());
  }
  return {};
}

}  // namespace models::service

// Bytes as text and as numbers of either byte order, and into how many bytes packed ones may grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/error.h"

namespace tensor {

using Bytes = std::span<const std::byte>;

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

/// The number in bytes[at, at + width), which the caller has made sure of.
inline std::uint64_t little_endian(Bytes bytes, std::size_t at, std::size_t width) {
  if (at > bytes.size() || width > bytes.size() - at) internal_error("bytes", "read past the end");
  std::uint64_t number = 0;
  for (std::size_t i = width; i-- > 0;)
    number = number << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  return number;
}

inline std::uint64_t big_endian(Bytes bytes, std::size_t at, std::size_t width) {
  if (at > bytes.size() || width > bytes.size() - at) internal_error("bytes", "read past the end");
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < width; ++i)
    number = number << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  return number;
}

/// Deflate cannot do better than 1032 : 1 (zlib's technical notes), so a larger claim is a lie.
inline constexpr std::int64_t kMaxDeflateRatio = 1032;

}  // namespace tensor

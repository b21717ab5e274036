// Checksums and hashes of texts. Both are part of files and their names: they stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tensor {

/// A number as that many hexadecimal digits, or more where it needs them.
std::string hexadecimal(std::uint64_t number, int digits);

/// The CRC-32 of a text as eight hexadecimal digits.
std::string crc32_digits(std::string_view text);

/// FNV-1a of 64 bits, of a text or, step by step, of whatever numbers are mixed in.
inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325u;
constexpr std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001b3u;
}
constexpr std::uint64_t hash_of(std::string_view text, std::uint64_t hash = kHashStart) {
  for (const char c : text) hash = mixed(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace tensor

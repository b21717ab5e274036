#include "src/core/checksum.h"

#include <zlib.h>

#include <cstdio>

namespace tensor {

std::string crc32_digits(std::string_view text) {
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08lx", static_cast<unsigned long>(crc));
  return digits;
}

}  // namespace tensor

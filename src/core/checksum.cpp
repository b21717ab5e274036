#include "src/core/checksum.h"

#include <zlib.h>

#include <iomanip>

#include "tensor/text.h"

namespace tensor {

std::string hexadecimal(std::uint64_t number, int digits) {
  TextWriter text;
  text << std::hex << std::setfill('0') << std::setw(digits) << number;
  return text.str();
}

std::string crc32_digits(std::string_view text) {
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return hexadecimal(crc, 8);
}

}  // namespace tensor

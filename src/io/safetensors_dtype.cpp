#include "src/io/safetensors_dtype.h"

#include <algorithm>
#include <array>

namespace tensor {
namespace {

// In the order of DType.
constexpr std::array<std::string_view, 10> kHeld = {"BOOL", "U8",  "I8",   "I16", "I32",
                                                    "I64",  "F16", "BF16", "F32", "F64"};
constexpr std::string_view kForeign[] = {"F4",      "F6_E2M3", "F6_E3M2",     "F8_E5M2",
                                         "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                         "U16",     "U32",     "U64",         "C64"};

}  // namespace

std::optional<DType> safetensors_dtype(std::string_view name) {
  const auto at = std::find(kHeld.begin(), kHeld.end(), name);
  if (at == kHeld.end()) return std::nullopt;
  return static_cast<DType>(at - kHeld.begin());
}

bool is_foreign_safetensors_dtype(std::string_view name) {
  return std::find(std::begin(kForeign), std::end(kForeign), name) != std::end(kForeign);
}

std::string_view safetensors_name(DType dtype) { return kHeld[static_cast<std::size_t>(dtype)]; }

}  // namespace tensor

#include "src/io/safetensors_dtype.h"

#include <algorithm>
#include <array>

namespace tensor {
namespace {

// In the order of DType.
constexpr std::array<std::string_view, 10> kDTypeNames = {"BOOL", "U8",  "I8",   "I16", "I32",
                                                          "I64",  "F16", "BF16", "F32", "F64"};
constexpr std::string_view kForeignDTypes[] = {"F4",      "F6_E2M3", "F6_E3M2",     "F8_E5M2",
                                               "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ",
                                               "U16",     "U32",     "U64",         "C64"};

}  // namespace

std::optional<DType> safetensors_dtype(std::string_view name) {
  const auto at = std::find(kDTypeNames.begin(), kDTypeNames.end(), name);
  if (at == kDTypeNames.end()) return std::nullopt;
  return static_cast<DType>(at - kDTypeNames.begin());
}

bool is_foreign_safetensors_dtype(std::string_view name) {
  return std::find(std::begin(kForeignDTypes), std::end(kForeignDTypes), name) !=
         std::end(kForeignDTypes);
}

std::string_view safetensors_name(DType dtype) {
  return kDTypeNames[static_cast<std::size_t>(dtype)];
}

}  // namespace tensor

#include "src/io/safetensors_dtype.h"

#include <algorithm>
#include <array>

namespace tensor {
namespace {

// In the order of DType.
constexpr std::array<std::string_view, 10> kDTypeNames = {"BOOL", "U8",  "I8",   "I16", "I32",
                                                          "I64",  "F16", "BF16", "F32", "F64"};
struct NarrowDType {
  std::string_view name;
  Narrow type;
};
constexpr NarrowDType kNarrow[] = {{"U16", Narrow::u16},
                                   {"U32", Narrow::u32},
                                   {"U64", Narrow::u64},
                                   {"F8_E4M3", Narrow::f8_e4m3},
                                   {"F8_E5M2", Narrow::f8_e5m2}};
struct ForeignDType {
  std::string_view name;
  int bits;
};
constexpr ForeignDType kForeign[] = {{"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6},
                                     {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
                                     {"C64", 64}};

}  // namespace

std::optional<DType> safetensors_dtype(std::string_view name) {
  const auto at = std::find(kDTypeNames.begin(), kDTypeNames.end(), name);
  if (at == kDTypeNames.end()) return std::nullopt;
  return static_cast<DType>(at - kDTypeNames.begin());
}

std::optional<Narrow> narrow_safetensors_dtype(std::string_view name) {
  for (const NarrowDType& row : kNarrow)
    if (row.name == name) return row.type;
  return std::nullopt;
}

std::optional<int> foreign_safetensors_bits(std::string_view name) {
  for (const ForeignDType& row : kForeign)
    if (row.name == name) return row.bits;
  return std::nullopt;
}

std::string_view safetensors_name(DType dtype) {
  return kDTypeNames[static_cast<std::size_t>(dtype)];
}

}  // namespace tensor

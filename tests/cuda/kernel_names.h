// The grammar of kernels' names, which src/kernels/cuda/family.h gives at name_kernel.
#pragma once

#include <regex>
#include <string>

namespace tensor::cuda {

inline bool follows_grammar(const std::string& entry) {
  static const std::regex grammar(
      "sm\\d+a?_("
      "((gemm|attention|softmax)(_mma|_plain)?|conv_(wgmma|mma|tiled))"  // what multiplies
      "_(i8|f16|bf16|tf32|f32|f64)_[fs](32|64)(_\\d+x\\d+)?_\\d+x\\d+(x\\d+t?)?_s\\d+"
      "|(add_parts|conv_depthwise|conv(_transpose)?_direct|copy|image|pack_(image|patches|weights)"
      "|pointwise|reduce|rows?|scan|sort)_(bool|u8|i8|i16|i32|i64|f16|bf16|f32|f64)"
      ")(_[a-z0-9]+)*__[0-9a-f]{8}");
  return std::regex_match(entry, grammar);
}

}  // namespace tensor::cuda

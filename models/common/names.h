// Taking the dotted names of parameters apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace models {

/// "blocks.0.norm1" to {"blocks", "0", "norm1"}.
inline std::vector<std::string> split_name(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

}  // namespace models

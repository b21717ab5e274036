#include "src/core/cache_folder.h"

#include <cstdlib>

namespace tensor {

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  if (const std::string folder = variable("TENSOR_CACHE_DIR"); !folder.empty()) return folder;
  if (const std::string folder = variable("XDG_CACHE_HOME"); !folder.empty())
    return folder + "/tensor/kernels";
  return variable("HOME") + "/.cache/tensor/kernels";
}

}  // namespace tensor

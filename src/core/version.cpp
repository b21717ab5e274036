#include "tensor/version.h"

namespace tensor {
std::string_view version() { return TENSOR_VERSION; }
}  // namespace tensor

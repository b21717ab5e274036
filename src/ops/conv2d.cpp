#include "src/ops/op.h"

namespace tensor {
std::span<const OpInfo> conv2d_ops() { return {}; }
}  // namespace tensor

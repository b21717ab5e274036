#include "src/ops/op.h"

namespace tensor {
std::span<const OpInfo> matmul_ops() { return {}; }
}  // namespace tensor

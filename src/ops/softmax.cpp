#include "src/ops/op.h"

namespace tensor {
std::span<const OpInfo> softmax_ops() { return {}; }
}  // namespace tensor

#include "src/ops/op.h"

namespace tensor {
std::span<const OpInfo> layer_norm_ops() { return {}; }
}  // namespace tensor

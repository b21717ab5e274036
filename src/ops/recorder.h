// Recorder: what a traced tensor refers to. apply_op hands an operator to it instead of running the
// kernel; this is the only place where eager and traced calls part.
#pragma once

#include <span>

#include "src/ops/op.h"

namespace tensor {

class Recorder {
 public:
  virtual ~Recorder() = default;
  /// The traced result of an operator; inputs that are not traced become constants.
  virtual Tensor record(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                        const TensorType& type) = 0;
};

}  // namespace tensor

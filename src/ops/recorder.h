// Recorder: what a traced tensor refers to. apply_op hands an operator to it instead of running the
// kernel; this is the only place where eager and traced calls part.
#pragma once

#include <functional>
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

/// Knows what operators made of tensors with elements when the same function was traced before:
/// apply_op asks the one of its thread, if there is one.
class Recall {
 public:
  virtual ~Recall() = default;
  /// What `compute` returns, or a tensor whose elements it makes if somebody looks at them.
  virtual Tensor result(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                        const TensorType& type, std::function<Tensor()> compute) = 0;

  static Recall* of_this_thread();
  /// The one of this thread as long as it lives.
  class Scope {
   public:
    explicit Scope(Recall* recall);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Recall* const before_;
  };
};

}  // namespace tensor

// What is thrown where elements of a traced tensor are asked for.
#pragma once

#include "tensor/error.h"

namespace tensor::detail {

/// Thrown by require_values (storage.h). The runner of ONNX files catches it.
class NeedsValues : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace tensor::detail

// compile for a target that is not one of this machine's devices: an emulated GPU, in tests.
#pragma once

#include "src/runtime/target.h"
#include "tensor/compile.h"

namespace tensor::detail {

/// As tensor::compile, for `target` in place of options.device and options.threads.
Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                   const CompileOptions& options, Target target);

}  // namespace tensor::detail

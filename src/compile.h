// compile for a target that is not one of this machine's devices: an emulated GPU, in tests. tune
// with parts of it left out, in the benchmark programs.
#pragma once

#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/tune/ablation.h"
#include "tensor/compile.h"
#include "tensor/tune.h"

namespace tensor::detail {

/// The stages before fusion: traced, simplified, cast, laid out.
LaidOutGraph prepare(const TensorFunction& function, const std::vector<TensorType>& inputs,
                     const CompileOptions& options, const Target& target);

/// As tensor::compile, for `target` in place of options.device and options.threads.
Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                   const CompileOptions& options, Target target);

/// As tensor::tune, without what the ablation leaves out; or a recording instead.
TuneSummary tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                 const CompileOptions& options, const TuneOptions& tuning, const Ablation& ablation,
                 const RecordOptions& record = {});

}  // namespace tensor::detail

// compile and tune for a target that is not one of this machine's devices: an emulated GPU, in
// tests.
#pragma once

#include "src/runtime/target.h"
#include "src/trace/layout.h"
#include "src/tune/tuner.h"
#include "tensor/compile.h"
#include "tensor/tune.h"

namespace tensor::detail {

/// The stages before fusion: traced, simplified, cast, laid out.
LaidOutGraph prepare(const TensorFunction& function, const std::vector<TensorType>& inputs,
                     const CompileOptions& options, const Target& target);

/// As tensor::compile, for `target` in place of options.device and options.threads.
Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                   const CompileOptions& options, Target target);

/// As tensor::tune, for `target`, measured by what `make` gives.
TuneSummary tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                 const CompileOptions& options, const TuneOptions& tuning, Target target,
                 Tuner::Limits limits, const Tuner::MakeMeasurer& make,
                 Tuner::MakeTimer make_timer = nullptr);

}  // namespace tensor::detail

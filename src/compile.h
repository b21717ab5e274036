// compile for a target that is not one of this machine's devices: an emulated GPU, in tests. tune
// with parts of it left out, in the benchmark programs.
#pragma once

#include "src/runtime/parts.h"
#include "src/runtime/target.h"
#include "src/trace/parallel.h"
#include "src/trace/passes/divide_products.h"
#include "src/tune/ablation.h"
#include "tensor/compile.h"
#include "tensor/tune.h"

namespace tensor::detail {

/// How far to compile, and what there is then: what is to be fused, and the program.
enum class Until : std::uint8_t { fusible, linked };
struct Compilation {
  Fusible fusible;
  std::shared_ptr<const Program> program;  // null unless linked
  bool is_hasty = false;                   // Scheduled::is_hasty
  std::vector<ProductChain> chains = {};   // of a target that has a share of them
  FusionPlan fused = {};                   // before parallel products are merged
};

/// The compiler: all stages, for `target` in place of options.device and options.threads. Within
/// options.memory_limit, for which `make_room` lets something go (Common::keep_within). `in_haste`
/// as scheduled() has it. Where only the constants differ from those of `like`, for another device
/// of the target's model, the program has the kernels of that one.
Compilation compile_until(Until until, const TensorFunction& function,
                          const std::vector<TensorType>& inputs, const CompileOptions& options,
                          Target target, const std::function<bool()>& make_room = nullptr,
                          bool in_haste = false, const Compilation* like = nullptr);

/// What the options ask for, "bf16 with narrow residuals" for one.
std::string computes_of(const CompileOptions& options);
/// "f32(1, 3, 800, 1066), i64(1,)".
std::string types_text(const std::vector<TensorType>& types);

/// The program for options.devices, which are not none. Pieces that `known` gives, where there is
/// one and it returns any, are not compiled. `any_extent` as in target_of.
std::shared_ptr<const Program> compile_for_devices(
    const TensorFunction& function, const std::vector<TensorType>& inputs, CompileOptions options,
    bool any_extent, const MakePiece& known = nullptr,
    const std::function<bool()>& make_room = nullptr);

/// The stages before fusion.
inline Fusible prepare(const TensorFunction& function, const std::vector<TensorType>& inputs,
                       const CompileOptions& options, const Target& target) {
  return compile_until(Until::fusible, function, inputs, options, target).fusible;
}

/// This is tensor::compile for such a target.
inline Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                          const CompileOptions& options, Target target) {
  return Executable(
      compile_until(Until::linked, function, inputs, options, std::move(target)).program);
}

/// As tensor::tune, without what the ablation leaves out; or a recording instead.
TuneSummary tune(const TensorFunction& function, const std::vector<TensorType>& inputs,
                 const CompileOptions& options, const TuneOptions& tuning, const Ablation& ablation,
                 const RecordOptions& record = {});

}  // namespace tensor::detail

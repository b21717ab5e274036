// The compiler: every stage once, in order, in compile_until(); and what an Executable and a
// Compiled do.
#include "tensor/compile.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <tuple>

#include "src/compile.h"
#include "src/core/storage.h"
#include "src/kernels/host/parallel.h"
#include "src/kernels/host/weights.h"
#include "src/runtime/program.h"
#include "src/stages.h"
#include "src/trace/trace.h"
#include "src/tune/tuned_cost.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

// What the options ask for, on a target that can do so. UserError where it cannot.
Precision precision_of(const CompileOptions& options, const detail::Target& target) {
  const bool on_gpu = target.device.is_cuda();
  const bool is_f16 = options.dtype == f16 && on_gpu;
  if (options.dtype != f32 && options.dtype != bf16 && !is_f16)
    fail("compile", "got dtype ", options.dtype, " on ", target.device,
         on_gpu ? ", need f32, bf16 or f16" : ", need f32 or bf16");
  if (options.tf32 && !on_gpu)
    fail("compile", "got tf32 on ", target.device, ", which has float32 only: leave tf32 out, or ",
         "compile for \"cuda\"");
  if (options.tf32 && options.dtype != f32)
    fail("compile", "got tf32 with dtype ", options.dtype, ", but tf32 is how f32 is multiplied");
  if (options.narrow_residuals && options.dtype == f32)
    fail("compile", "got narrow_residuals with dtype f32, but they are stored as dtype says: need ",
         on_gpu ? "f16 or bf16" : "bf16", ", or leave narrow_residuals out");
  return {.dtype = options.dtype == bf16 && !target.multiplies_bf16 ? f32 : options.dtype,
          .tf32 = options.tf32,
          .narrow_images = on_gpu,
          .narrow_residuals = options.narrow_residuals,
          .folds_norms = target.folds_norms && options.fuse};
}

}  // namespace

detail::Compilation detail::compile_until(Until until, const TensorFunction& function,
                                          const std::vector<TensorType>& inputs,
                                          const CompileOptions& options, Target target) {
  const Precision precision = precision_of(options, target);
  const int threads = options.threads > 0 ? options.threads : cpu::all_threads();
  const auto convert = [&](const Tensor& x, DType to) { return cpu::converted(x, to, threads); };
  const Stages stages(target.device.is_cuda());

  Graph graph = stages.run("trace", [&] { return trace(function, inputs, options.names); });
  stages.dump("traced", graph);
  for (const Pass& pass : passes_for(precision, convert)) graph = stages.pass(pass, graph);
  LaidOutGraph laid = stages.run("layout", [&] { return lay_out(graph); });
  verify(laid.graph, "layout");
  Fusible fusible =
      stages.run("propose_parallel", [&] { return propose_parallel(std::move(laid)); });
  if (until == Until::fusible) return {std::move(fusible), nullptr};

  const auto table = stages.run("read_logs", [&] { return table_for(target, options.tune_logs); });
  FusionPlan plan = stages.run("fuse", [&] {
    return options.fuse ? tuned_fusion(fusible, target, table)
                        : no_fusion(fusible.laid, tuned_cost(target, table));
  });
  std::tie(laid, plan) =
      stages.run("merge_parallel", [&] { return merge_parallel(fusible.laid, plan); });
  verify(laid.graph, "merge_parallel");
  stages.dump(laid, plan, target);
  plan = stages.run("schedule", [&] { return scheduled(laid, plan, *target.offers); });
  auto kernels = stages.run("lower", [&] { return target.lower(laid, plan); });
  stages.dump(laid, plan, target, *kernels);
  return {std::move(fusible), stages.run("link", [&] {
            return link(std::move(laid), std::move(plan), std::move(kernels), std::move(target));
          })};
}

Executable compile(const detail::TracedFunction& traced, const std::vector<TensorType>& inputs,
                   const CompileOptions& options) {
  return detail::compile(traced.function, inputs, options,
                         detail::target_of(options.device, options.threads));
}

Executable compile(const detail::TracedFunction& traced, const std::vector<Tensor>& examples,
                   const CompileOptions& options) {
  std::vector<TensorType> types;
  for (const Tensor& x : examples) types.push_back(x.type());
  return compile(traced, types, options);
}

// ---- Compiled: the executables for the last few lists of input types, the most recent first.

struct Compiled::Cache {
  TensorFunction function;
  CompileOptions options;
  std::size_t capacity;
  std::mutex mutex;
  std::list<Executable> recent;
};

Compiled::Compiled(TensorFunction function, CompileOptions options, std::size_t capacity)
    : cache_(std::make_shared<Cache>()) {
  cache_->function = std::move(function);
  cache_->options = std::move(options);
  cache_->capacity = std::max<std::size_t>(capacity, 1);
}

std::vector<Tensor> Compiled::operator()(const std::vector<Tensor>& inputs) const {
  for (const Tensor& x : inputs)
    if (detail::impl(x).recorder) return cache_->function(inputs);
  return executable(inputs)(inputs);
}

Executable Compiled::executable(const std::vector<Tensor>& inputs) const {
  std::vector<TensorType> types;
  for (const Tensor& x : inputs) types.push_back(x.type());
  const std::lock_guard lock(
      cache_->mutex);  // two callers with new types compile one after the other
  auto& recent = cache_->recent;
  const auto known = std::find_if(recent.begin(), recent.end(),
                                  [&](const Executable& e) { return e.input_types() == types; });
  if (known != recent.end()) {
    recent.splice(recent.begin(), recent, known);
  } else {
    recent.push_front(compile(cache_->function, types, cache_->options));
    if (recent.size() > cache_->capacity) recent.pop_back();
  }
  return recent.front();
}

}  // namespace tensor

// The compiler: every stage once, in order, named, verified and, if asked for by TENSOR_DUMP,
// printed.
#include "tensor/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <list>
#include <mutex>
#include <optional>
#include <sstream>

#include "src/compile.h"
#include "src/kernels/cuda/driver/range.h"
#include "src/kernels/host/weights.h"
#include "src/runtime/describe.h"
#include "src/runtime/program.h"
#include "src/trace/parallel.h"
#include "src/trace/passes/passes.h"
#include "src/trace/trace.h"
#include "src/tune/tuned_cost.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

// TENSOR_DUMP is a list such as "graph,plan,time": what to print to stderr while compiling. "dot"
// is the graph that is run, as Graphviz text.
class Stages {
 public:
  /// Profilers of GPUs see the stages of programs `on_gpu`.
  explicit Stages(bool on_gpu) : on_gpu_(on_gpu) {
    const char* wanted = std::getenv("TENSOR_DUMP");
    std::istringstream words(wanted ? wanted : "");
    for (std::string word; std::getline(words, word, ',');) {
      if (word != "graph" && word != "plan" && word != "time" && word != "dot")
        fail("TENSOR_DUMP", "got \"", word, "\", need graph, plan, time or dot, or several with ",
             "commas between them");
      dump_.push_back(word);
    }
  }
  bool wants(std::string_view what) const {
    return std::find(dump_.begin(), dump_.end(), what) != dump_.end();
  }

  template <class F>
  auto run(std::string_view name, F&& stage) {
    std::optional<cuda::Range> range;
    if (on_gpu_) range.emplace("compile: " + std::string(name));
    const auto begin = std::chrono::steady_clock::now();
    auto result = stage();
    const double ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (wants("time")) std::cerr << "stage " << name << ": " << ms << " ms\n";
    return result;
  }
  Graph pass(const Pass& pass, const Graph& graph) {
    Graph result = run(pass.name, [&] { return pass.run(graph); });
    verify(result, pass.name);
    if (wants("graph")) std::cerr << "-- after " << pass.name << '\n' << result;
    return result;
  }

 private:
  std::vector<std::string> dump_;
  bool on_gpu_;
};

}  // namespace

LaidOutGraph detail::prepare(const TensorFunction& function, const std::vector<TensorType>& inputs,
                             const CompileOptions& options, const Target& target) {
  const bool is_f16 = options.dtype == f16 && target.device.is_cuda();
  if (options.dtype != f32 && options.dtype != bf16 && !is_f16)
    fail("compile", "got dtype ", options.dtype, " on ", target.device,
         target.device.is_cuda() ? ", need f32, bf16 or f16" : ", need f32 or bf16");
  if (options.tf32 && !target.device.is_cuda())
    fail("compile", "got tf32 on ", target.device, ", which has float32 only: leave tf32 out, or ",
         "compile for \"cuda\"");
  if (options.tf32 && options.dtype != f32)
    fail("compile", "got tf32 with dtype ", options.dtype, ", but tf32 is how f32 is multiplied");
  if (options.narrow_residuals && options.dtype == f32)
    fail("compile", "got narrow_residuals with dtype f32, but they are stored as dtype says: need ",
         target.device.is_cuda() ? "f16 or bf16" : "bf16", ", or leave narrow_residuals out");
  const DType dtype = options.dtype == bf16 && !target.multiplies_bf16 ? f32 : options.dtype;
  Stages stages(target.device.is_cuda());
  Graph graph = stages.run("trace", [&] { return trace(function, inputs, options.names); });
  if (stages.wants("graph")) std::cerr << "-- traced\n" << graph;
  const bool on_gpu = target.device.is_cuda();
  const Precision precision = {.dtype = dtype,
                               .tf32 = options.tf32,
                               .narrow_images = on_gpu,
                               .narrow_residuals = options.narrow_residuals,
                               .folds_norms = target.folds_norms && options.fuse};
  const int threads = options.threads > 0 ? options.threads : cpu::all_threads();
  for (const Pass& pass : passes_for(
           precision, [&](const Tensor&x, DType to) { return cpu::converted(x, to, threads); }))
    graph = stages.pass(pass, graph);
  LaidOutGraph laid = stages.run("layout", [&] { return lay_out(graph); });
  verify(laid.graph, "layout");
  return laid;
}

Executable detail::compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                           const CompileOptions& options, Target target) {
  Stages stages(target.device.is_cuda());
  LaidOutGraph laid = prepare(function, inputs, options, target);
  const auto table = stages.run("read logs", [&] { return table_for(target, options.tune_logs); });
  FusionPlan plan = stages.run("fuse", [&] {
    return options.fuse ? tuned_fusion(laid.graph, target, table)
                        : no_fusion(laid.graph, tuned_cost(target, table));
  });
  std::tie(laid, plan) = stages.run("merge_parallel", [&] { return merge_parallel(laid, plan); });
  verify(laid.graph, "merge_parallel");
  if (stages.wants("dot")) std::cerr << to_dot(laid.graph);
  if (stages.wants("plan")) std::cerr << "-- plan\n" << detail::plan_text(laid.graph, plan, target);
  return Executable(stages.run(
      "link", [&] { return detail::link(std::move(laid), std::move(plan), std::move(target)); }));
}

Executable compile(const TensorFunction& function, const std::vector<TensorType>& inputs,
                   const CompileOptions& options) {
  return detail::compile(function, inputs, options,
                         detail::target_of(options.device, options.threads));
}

Executable compile(const TensorFunction& function, const std::vector<Tensor>& examples,
                   const CompileOptions& options) {
  std::vector<TensorType> types;
  for (const Tensor& x : examples) types.push_back(x.type());
  return compile(function, types, options);
}

std::vector<Tensor> Executable::operator()(const std::vector<Tensor>& inputs) const {
  return detail::execute(*program_, inputs);
}

void Executable::run(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) const {
  detail::execute(*program_, inputs, outputs);
}

std::vector<double> Executable::time(const std::vector<Tensor>& inputs, int repeats) const {
  detail::check_inputs(*program_, inputs);
  return program_->engine->time_whole(inputs, repeats);
}

const std::vector<TensorType>& Executable::input_types() const { return program_->inputs; }
const std::vector<TensorType>& Executable::output_types() const { return program_->outputs; }
std::int64_t Executable::arena_bytes() const { return program_->placement.memory.bytes; }
std::int64_t Executable::arena_lower_bound() const {
  return program_->placement.memory.lower_bound;
}
DeviceMemory Executable::device_memory() const { return program_->engine->memory(); }
std::size_t Executable::group_count() const { return program_->plan.groups.size(); }

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

// Stages: what compile() does step by step, timed, verified and, where TENSOR_DUMP asks for it,
// printed.
#pragma once

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/kernels/cuda/driver/range.h"
#include "src/runtime/target.h"
#include "src/trace/passes/passes.h"

namespace tensor {

/// TENSOR_DUMP is a list such as "graph,plan,time" of what to print to stderr while compiling:
/// "graph" after every pass, "dot" the graph that is run as Graphviz text, "plan" the groups,
/// "schedule" how each runs, "time" how long every stage takes; and "source" writes every generated
/// kernel into the folder TENSOR_DUMP_FOLDER, "tensor_dump" unless it is set.
class Stages {
 public:
  /// UserError on any other word. Profilers of GPUs see the stages of programs `on_gpu`.
  explicit Stages(bool on_gpu);

  bool wants(std::string_view what) const;

  /// What `stage` returns.
  template <class F>
  auto run(std::string_view name, F&& stage) const {
    std::optional<cuda::Range> range;
    if (on_gpu_) range.emplace("compile: " + std::string(name));
    const auto begin = std::chrono::steady_clock::now();
    auto result = stage();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    if (wants("time")) std::cerr << "stage " << name << ": " << time.count() << " ms\n";
    return result;
  }
  /// The graph that the pass makes, verified where it is printed: looking at every type after every
  /// pass takes as long as the passes.
  Graph pass(const Pass& pass, const Graph& graph) const;

  void dump(std::string_view title, const Graph& graph) const;
  void dump(const LaidOutGraph& laid, const FusionPlan& plan, const detail::Target& target) const;
  void dump(const LaidOutGraph& laid, const FusionPlan& plan, const detail::Target& target,
            const detail::Kernels& kernels) const;

 private:
  std::vector<std::string> dump_;
  bool on_gpu_;
};

}  // namespace tensor

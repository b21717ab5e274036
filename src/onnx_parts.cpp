// ONNX models of which only parts can be compiled: split and in_parts.
#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "src/core/types_of.h"
#include "src/onnx/split.h"
#include "src/trace/trace.h"
#include "tensor/compile.h"
#include "tensor/onnx.h"

namespace tensor {
namespace {

using detail::types_of;
using onnx::Parts;
using ModelPart = std::shared_ptr<const onnx::Model>;

Parts split_for(const ModelPart& model, const std::vector<TensorType>& types) {
  Parts parts;
  trace(
      [&](const std::vector<Tensor>& inputs) {
        parts = onnx::split(model, inputs);
        parts.outputs.clear();
        return inputs;
      },
      types);
  return parts;
}

std::vector<Tensor> on_host(std::vector<Tensor> values) {
  for (Tensor& x : values) x = x.to(Device());
  return values;
}

class Stage;

// What is done with the values of a stage: a compiled part or one that runs eagerly, and what comes
// behind it, or nothing.
struct Step {
  std::optional<Executable> compiled;
  ModelPart eager;
  std::shared_ptr<Stage> next;
};

// A part of a model, and its steps for the types that were met last.
class Stage {
 public:
  explicit Stage(ModelPart model) : model_(std::move(model)) {}

  // Who needs the same stage waits while a step is made.
  std::shared_ptr<const Step> step(const std::vector<TensorType>& types,
                                   const CompileOptions& options) {
    const std::lock_guard lock(mutex_);
    auto known = std::ranges::find(steps_, types, &Entry::first);
    if (known == steps_.end()) {
      steps_.emplace_front(types, std::make_shared<const Step>(made(types, options)));
      if (steps_.size() > kKept) steps_.pop_back();
    } else {
      steps_.splice(steps_.begin(), steps_, known);
    }
    return steps_.front().second;
  }

 private:
  using Entry = std::pair<std::vector<TensorType>, std::shared_ptr<const Step>>;
  static constexpr std::size_t kKept = 8;

  struct NotWorthIt {};  // thrown where a compiled part would run no faster

  Step made(const std::vector<TensorType>& types, const CompileOptions& options) const {
    const onnx::Graph& graph = model_->graph;
    if (graph.nodes.empty()) return {{}, model_, nullptr};
    // The call that is traced first, of all inputs, tells the parts; those for parts of a batch on
    // several devices are of the same head.
    Parts parts;
    const auto function = [&](const std::vector<Tensor>& x) {
      if (parts.head) return onnx::run(*parts.head, x);
      parts = onnx::split(model_, x);
      const onnx::Graph& head = parts.head->graph;
      if (!parts.node.empty() && find_heavy(head, 0) == head.nodes.size()) throw NotWorthIt();
      return std::exchange(parts.outputs, {});
    };
    try {
      const Executable compiled = compile(function, types, options);
      return {compiled, nullptr,
              parts.node.empty() ? nullptr : std::make_shared<Stage>(parts.rest)};
    } catch (const NotWorthIt&) {
    }
    // What is before a heavy node runs eagerly, that node itself where it has been tried.
    const std::size_t heavy = find_heavy(graph, 1);
    if (heavy == graph.nodes.size()) return {{}, model_, nullptr};
    const Parts divided = divide(*model_, heavy);
    return {{}, divided.head, std::make_shared<Stage>(divided.rest)};
  }

  const ModelPart model_;
  std::mutex mutex_;
  std::list<Entry> steps_;  // the latest first
};

}  // namespace

OnnxSplit OnnxModel::split(const std::vector<TensorType>& inputs) const {
  onnx::check_inputs(*model_, inputs);
  Parts parts = split_for(model_, inputs);
  return {OnnxModel(parts.head), OnnxModel(parts.rest), std::move(parts.node)};
}

OnnxSplit OnnxModel::split(const std::map<std::string, Tensor>& inputs) const {
  return split(types_of(onnx::in_order(*model_, inputs)));
}

TensorFunction OnnxModel::in_parts(const CompileOptions& options) const {
  CompileOptions first = options;
  if (!first.sharing) first.sharing.emplace();
  CompileOptions later = first;  // what these name may be in the first part
  later.exclude.clear(), later.scales.clear();
  return [=, model = model_, root = std::make_shared<Stage>(model_)](std::vector<Tensor> values) {
    onnx::check_inputs(*model, types_of(values));
    std::shared_ptr<Stage> stage = root;
    for (const CompileOptions* how = &first;; how = &later) {
      const auto step = stage->step(types_of(values), *how);
      values =
          step->compiled ? (*step->compiled)(values) : onnx::run(*step->eager, on_host(values));
      if (!step->next) return values;
      values = on_host(std::move(values));
      stage = step->next;
    }
  };
}

}  // namespace tensor

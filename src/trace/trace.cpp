#include "src/trace/trace.h"

#include <algorithm>
#include <map>
#include <optional>

#include "src/core/key.h"
#include "src/core/storage.h"
#include "src/ops/recorder.h"
#include "src/trace/constants.h"
#include "src/trace/derived.h"

namespace tensor {
namespace {

class GraphRecorder : public Recorder, public std::enable_shared_from_this<GraphRecorder> {
 public:
  GraphRecorder(const ConstantNames& names, std::shared_ptr<DerivedConstants> derived) {
    graph_.derive_with(std::move(derived));
    for (const auto& [path, value] : names) {
      names_[detail::placed(value).first()] = path;
      kept_.push_back(value);
    }
  }

  Tensor input(const TensorType& type) { return traced(graph_.add_input(type)); }

  Tensor record(Op op, std::span<const Tensor> inputs, const Attrs& attrs,
                const TensorType&) override {
    std::vector<ValueId> ids;
    for (const Tensor& x : inputs) ids.push_back(value_of(x));
    const std::string where = note(ids);
    return traced(graph_.add(op, std::move(ids), attrs, where));
  }

  ValueId value_of(const Tensor& x) {
    const detail::TensorImpl& impl = detail::impl(x);
    if (impl.recorder) {
      if (impl.recorder.get() != this)
        fail("trace",
             "a tensor of another trace is used here: return it as an output and pass it in");
      return static_cast<ValueId>(impl.value);
    }
    const auto known = impl.storage->late ? names_.end() : names_.find(impl.first());
    return constants_.value_of(graph_, x, known == names_.end() ? "" : known->second);
  }

  Graph finish(const std::vector<Tensor>& outputs) {
    std::vector<ValueId> ids;
    for (const Tensor& x : outputs) ids.push_back(value_of(x));
    graph_.set_outputs(std::move(ids));
    constants_.finish(graph_);
    return std::move(graph_);
  }

 private:
  Tensor traced(ValueId id) {
    detail::TensorImpl impl;
    impl.type = graph_.type(id);
    impl.strides = row_major(impl.type.shape);
    impl.recorder = shared_from_this();
    impl.value = id;
    return detail::make_tensor(std::move(impl));
  }

  // The module that owns the parameter among the inputs; without one, that of the latest traced
  // input that has a note.
  std::string note(const std::vector<ValueId>& inputs) const {
    std::string found;
    for (const ValueId id : inputs) {
      const Node& node = graph_[id];
      if (node.where.empty()) continue;
      const std::string& where = node.where;
      if (node.kind == NodeKind::constant) return where.substr(0, where.rfind('.'));
      found = where;
    }
    return found;
  }

  Graph graph_;
  std::map<const std::byte*, std::string> names_;  // by the address of the first element
  std::vector<Tensor> kept_;                       // so that no other tensor gets their addresses
  Constants constants_;
};

// What a function computes of constants alone is the same for all sizes of its inputs.
class DerivedRecall final : public Recall {
 public:
  explicit DerivedRecall(std::shared_ptr<DerivedConstants> derived)
      : derived_(std::move(derived)) {}

  Tensor result(Op op, std::span<const Tensor> inputs, const Attrs& attrs, const TensorType& type,
                std::function<Tensor()> compute) override {
    constexpr std::int64_t kLeast = 4096;  // elements: fewer are computed as fast as recognised
    std::int64_t elements = num_elements(type.shape);
    for (const Tensor& x : inputs) elements = std::max(elements, x.size());
    if (elements < kLeast) return compute();
    const Recall::Scope none(nullptr);  // it looks at elements by operators itself
    Key what;
    what << "traced " << op << attrs;
    return derived_->derivation(what.bytes(), {inputs.begin(), inputs.end()})
        .lend(std::move(compute));
  }

 private:
  const std::shared_ptr<DerivedConstants> derived_;
};

}  // namespace

Graph trace(const TensorFunction& function, const std::vector<TensorType>& inputs,
            const ConstantNames& names, std::shared_ptr<DerivedConstants> derived) {
  std::optional<DerivedRecall> recall;
  if (derived) recall.emplace(derived);
  const auto recorder = std::make_shared<GraphRecorder>(names, std::move(derived));
  std::vector<Tensor> arguments;
  for (const TensorType& type : inputs) arguments.push_back(recorder->input(type));
  const auto traced = [&] {
    const Recall::Scope scope(recall ? &*recall : nullptr);
    return function(arguments);
  };
  Graph graph = recorder->finish(traced());
  verify(graph, "trace");
  return graph;
}

}  // namespace tensor

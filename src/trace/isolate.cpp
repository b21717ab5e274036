#include "src/trace/isolate.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "src/trace/rewrite.h"
#include "tensor/text.h"

namespace tensor {
namespace {

class Isolator {
 public:
  Isolator(const LaidOutGraph& laid, const Group& group)
      : laid_(laid),
        group_(group),
        rewriter_(laid.graph, static_cast<ValueId>(group.reads.size() + group.nodes.size())) {}

  Isolated run() {
    for (const ValueId id : group_.reads) {
      if (laid_.graph.is_constant(root_of(laid_.graph, id)))
        keep(id);
      else
        place(id, rewriter_.to().add_input(laid_.graph.type(id), laid_.graph[id].where));
    }
    for (const ValueId id : group_.nodes) keep(id);
    const auto moved = [&](std::vector<ValueId> ids) {
      for (ValueId& id : ids) id = rewriter_(id);
      return ids;
    };
    Group group = group_;
    group.nodes = moved(group_.nodes);
    group.reads = moved(group_.reads);
    group.writes = moved(group_.writes);
    rewriter_.to().set_outputs(group.writes);
    return {{std::move(rewriter_.to()), std::move(layouts_)}, std::move(group)};
  }

 private:
  void place(ValueId id, ValueId as) {
    rewriter_.replace(id, as);
    layouts_.push_back(laid_.layouts[at(id)]);
  }

  // With the views and constants that it is made from.
  void keep(ValueId id) {
    visit_inputs_first(
        laid_.graph, id, [&](ValueId v) { return rewriter_(v) >= 0; }, [](ValueId) { return true; },
        [&](ValueId v) { place(v, rewriter_.keep(v)); });
  }

  const LaidOutGraph& laid_;
  const Group& group_;
  Rewriter rewriter_;
  std::vector<Layout> layouts_;
};

// Strides of a value as if what it is a view of lay in rows.
Strides strides_of(const Graph& graph, ValueId id) {
  std::vector<ValueId> views;
  for (; is_view(graph, id); id = graph[id].inputs[0]) views.push_back(id);
  Strides strides = row_major(graph.type(id).shape);
  for (; !views.empty(); views.pop_back()) {
    const Node& node = graph[views.back()];
    const auto view = info(node.op).view(graph.type(node.inputs[0]), strides, node.attrs);
    strides = view ? view->strides : row_major(node.type.shape);
  }
  return strides;
}

// " lies 0 2 1" where axes do not lie in their own order, "=2" for one whose elements are the same.
std::string order_text(const Graph& graph, ValueId id) {
  const Shape& shape = graph.type(id).shape;
  const Strides strides = strides_of(graph, id);
  std::vector<int> order;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1) order.push_back(axis);
  const bool repeats = std::any_of(order.begin(), order.end(), [&](int a) { return !strides[a]; });
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return std::abs(strides[a]) > std::abs(strides[b]); });
  if (!repeats && std::is_sorted(order.begin(), order.end())) return {};
  std::string text = " lies";
  for (const int axis : order) text += (strides[axis] ? " " : " =") + std::to_string(axis);
  return text;
}

// Numbers values in the order in which the written ones need them, which no order of a program
// changes.
class ProblemWriter {
 public:
  ProblemWriter(const Graph& graph, const Group& group) : graph_(graph), group_(group) {}

  std::string run() {
    std::string results;
    for (const ValueId id : group_.writes) results += " %" + std::to_string(number_of(id));
    text_ << "return" << results;
    return text_.str();
  }

 private:
  bool is_inside(ValueId id) const {
    return std::binary_search(group_.nodes.begin(), group_.nodes.end(), root_of(graph_, id));
  }

  std::size_t number_of(ValueId id) {
    visit_inputs_first(
        graph_, id, [&](ValueId v) { return numbers_.contains(v); },
        [&](ValueId v) { return is_inside(v); }, [&](ValueId v) { write(v); });
    return numbers_.at(id);
  }

  void write(ValueId id) {
    const std::size_t number = numbers_.size();
    text_ << '%' << number << " = ";
    if (!is_inside(id)) {
      const bool is_constant = graph_.is_constant(root_of(graph_, id));
      text_ << (is_constant ? "constant " : "") << graph_.type(id);
      if (!is_constant) text_ << order_text(graph_, id);
    } else {
      const Node& node = graph_[id];
      text_ << info(node.op).name << '(';
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        text_ << (i > 0 ? ", %" : "%") << numbers_.at(node.inputs[i]);
      if (!node.attrs.entries().empty()) text_ << ", " << node.attrs;
      text_ << ')';
    }
    text_ << "; ";
    numbers_[id] = number;
  }

  const Graph& graph_;
  const Group& group_;
  std::map<ValueId, std::size_t> numbers_;
  TextWriter text_;
};

}  // namespace

Isolated isolate(const LaidOutGraph& laid, const Group& group) {
  return Isolator(laid, group).run();
}

std::string problem_text(const Graph& graph, const Group& group) {
  return ProblemWriter(graph, group).run();
}

std::string twin_text(std::string_view problem) {
  constexpr std::string_view kName = "f16";  // no other word of a problem has it in itself
  std::string twin;
  for (std::size_t at; (at = problem.find(kName)) != std::string_view::npos;) {
    twin += problem.substr(0, at);
    if (twin.ends_with('b'))
      twin.pop_back();
    else
      twin += 'b';
    twin += kName;
    problem.remove_prefix(at + kName.size());
  }
  return twin += problem;
}

}  // namespace tensor

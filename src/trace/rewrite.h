// Rewriter: rebuilds a graph node by node, so that a pass only says what it changes.
#pragma once

#include <optional>
#include <vector>

#include "src/trace/graph.h"

namespace tensor {

class Rewriter {
 public:
  explicit Rewriter(const Graph& from) : Rewriter(from, from.size()) {}
  /// For a graph of about so many nodes: room for all of `from` is a large block, of which every
  /// group by itself would need one.
  Rewriter(const Graph& from, ValueId nodes)
      : from_(from), map_(static_cast<std::size_t>(from.size()), -1) {
    to_.derive_with(from.derived());
    to_.reserve(nodes);
  }

  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  const Graph& to() const { return to_; }
  /// The new value of an old one; the old one must have been handled.
  ValueId operator()(ValueId old) const { return map_[at(old)]; }
  ValueIds inputs(const Node& node) const;
  void replace(ValueId old, ValueId with) { map_[at(old)] = with; }
  /// Copies the node as it is, over its inputs' new values.
  ValueId keep(ValueId old);
  /// A new value in another shape. A constant stays one, since kernels know constants by the node.
  ValueId reshaped(ValueId value, const Shape& shape, const std::string& where);
  /// Maps the outputs and returns the new graph.
  Graph finish();

 private:
  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
};

/// Calls rewrite(rewriter, id, node) for every node in order; a returned value replaces the node,
/// nullopt keeps it.
template <class F>
Graph rewrite(const Graph& graph, F&& change) {
  Rewriter rewriter(graph);
  for (ValueId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::optional<ValueId> replacement;
    if (node.kind == NodeKind::operation) replacement = change(rewriter, id, node);
    rewriter.replace(id, replacement ? *replacement : rewriter.keep(id));
  }
  return rewriter.finish();
}

}  // namespace tensor

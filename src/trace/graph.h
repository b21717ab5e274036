// Graph: what a traced function computes. Append-only, so every node's inputs come before it: the
// order of nodes is a topological order. A pass takes a const Graph and returns a new one.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/ops/op.h"
#include "src/trace/node_parts.h"
#include "tensor/handle.h"

namespace tensor {

class DerivedConstants;

enum class NodeKind : std::uint8_t { input, constant, operation };

struct Node {
  NodeKind kind = NodeKind::operation;
  Op op = Op::count_;  // operations only
  ValueIds inputs;     // operations only
  Attrs attrs;         // operations only
  TensorType type;
  Tensor constant;   // constants only; shared with the model, not copied
  SharedText where;  // module path in the model's own words, "" when unknown
};

class Graph {
 public:
  ValueId add_input(TensorType type, SharedText where = {});
  ValueId add_constant(const Tensor& value, SharedText where = {});
  /// Room for so many nodes.
  void reserve(ValueId nodes) { nodes_.reserve(at(nodes)); }
  /// Infers the type as `apply_op` does.
  ValueId add(Op op, ValueIds inputs, Attrs attrs = {}, SharedText where = {});
  /// The operator of another graph's node over inputs of the same types, so that its own is known.
  ValueId add_like(const Node& node, ValueIds inputs);
  void set_outputs(std::vector<ValueId> outputs);
  /// The last outputs are no results, but flags: what is wrong, in words, where one is true.
  void set_checks(std::vector<std::string> checks) { checks_ = std::move(checks); }
  /// The value, of its type, takes the place of the constant of a node.
  void set_constant(ValueId id, const Tensor& value) { nodes_[at(id)].constant = value; }

  /// What its constants become is shared with other graphs. None: is made anew.
  void derive_with(std::shared_ptr<DerivedConstants> derived) { derived_ = std::move(derived); }
  const std::shared_ptr<DerivedConstants>& derived() const { return derived_; }

  const Node& operator[](ValueId id) const { return nodes_[at(id)]; }
  ValueId size() const { return static_cast<ValueId>(nodes_.size()); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<ValueId>& outputs() const { return outputs_; }
  const std::vector<std::string>& checks() const { return checks_; }
  const TensorType& type(ValueId id) const { return (*this)[id].type; }
  bool is_constant(ValueId id) const { return (*this)[id].kind == NodeKind::constant; }
  bool is_op(ValueId id, Op op) const {
    return (*this)[id].kind == NodeKind::operation && (*this)[id].op == op;
  }

 private:
  ValueId append(Node&& node);

  std::vector<Node> nodes_;
  std::vector<ValueId> inputs_, outputs_;
  std::vector<std::string> checks_;
  std::shared_ptr<DerivedConstants> derived_;
};

/// The consumers of every value, each listed once.
std::vector<std::vector<ValueId>> consumers(const Graph& graph);

/// Runs a graph node by node on the reference kernels. Equal to the eager run bit for bit.
std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs);

/// Throws InternalError, naming `stage`, unless every node's inputs come before it, its type is
/// what its operator infers, and inputs and outputs exist.
void verify(const Graph& graph, std::string_view stage);

/// One node a line: "%12 = matmul(%3, %11) : f32(1, 197, 768)  # encoder.layer.3.attention".
/// Lossless but for the constants' values.
std::ostream& operator<<(std::ostream& out, const Graph& graph);

/// Graphviz text: operators as boxes, constants left out, edges labelled with types.
std::string to_dot(const Graph& graph);

}  // namespace tensor

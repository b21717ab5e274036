#include "src/trace/rewrite.h"

#include <algorithm>

#include "tensor/ops.h"

namespace tensor {

ValueIds Rewriter::inputs(const Node& node) const {
  ValueIds result = node.inputs;
  for (ValueId& id : result) id = (*this)(id);
  return result;
}

ValueId Rewriter::keep(ValueId old) {
  const Node& node = from_[old];
  switch (node.kind) {
    case NodeKind::input:
      return to_.add_input(node.type, node.where);
    case NodeKind::constant:
      return to_.add_constant(node.constant, node.where);
    case NodeKind::operation:
      break;
  }
  ValueIds now = inputs(node);
  const bool has_types = std::equal(
      now.begin(), now.end(), node.inputs.begin(),
      [&](ValueId kept, ValueId before) { return to_.type(kept) == from_.type(before); });
  return has_types ? to_.add_like(node, std::move(now))
                   : to_.add(node.op, std::move(now), node.attrs, node.where);
}

ValueId Rewriter::reshaped(ValueId value, const Shape& shape, const std::string& where) {
  if (to_.is_constant(value)) return to_.add_constant(reshape(to_[value].constant, shape), where);
  return to_.add(Op::reshape, {value}, {{"shape", Ints(shape.begin(), shape.end())}}, where);
}

Graph Rewriter::finish() {
  std::vector<ValueId> outputs;
  for (const ValueId id : from_.outputs()) outputs.push_back((*this)(id));
  to_.set_outputs(std::move(outputs));
  to_.set_checks(from_.checks());
  return std::move(to_);
}

}  // namespace tensor

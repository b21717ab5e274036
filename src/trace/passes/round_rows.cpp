#include "src/trace/passes/round_rows.h"

#include <map>

#include "src/ops/eight_bits.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

struct RoundedRows {
  ValueId bytes = -1, scales = -1;
};

RoundedRows rounded(Graph& to, ValueId x, const std::string& where) {
  const auto add = [&](Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return to.add(op, std::move(inputs), std::move(attrs), where);
  };
  const auto number = [&](float value) { return to.add_constant(full({}, value, f32), where); };
  if (to.type(x).dtype != f32) x = add(Op::astype, {x}, {{"dtype", f32}});
  const Dims last{to.type(x).shape.rank() - 1};
  const ValueId magnitude = add(Op::max, {add(Op::abs, {x})}, {{"axis", last}, {"keepdims", true}}),
                largest = add(Op::maximum, {magnitude, number(kLeastMagnitude)}),
                most = number(kMostByte), inverse = add(Op::divide, {most, largest}),
                rounded = add(Op::round, {add(Op::multiply, {x, inverse})});
  return {add(Op::astype, {rounded}, {{"dtype", i8}}), add(Op::divide, {largest, most})};
}

// The constant that is one number beside the operand of an operator.
std::optional<float> number_beside(const Graph& graph, ValueId id, Op op) {
  if (!graph.is_op(id, op) || graph.type(id).dtype != f32) return std::nullopt;
  const Node& number = graph[graph[id].inputs[1]];
  if (number.kind != NodeKind::constant || number.constant.size() != 1) return std::nullopt;
  return number.constant.item<float>();
}

}  // namespace

ValueId add_rounding(Graph& to, ValueId x, float scale, const std::string& where) {
  const auto add = [&](Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return to.add(op, std::move(inputs), std::move(attrs), where);
  };
  const auto number = [&](const Shape& shape, float value) {
    return to.add_constant(full(shape, value, f32), where);
  };
  const ValueId scaled = add(Op::multiply, {x, number({1}, 1 / scale)}),
                bounded = add(Op::maximum, {scaled, number({}, -kMostByte)});
  return add(Op::astype, {add(Op::round, {bounded})}, {{"dtype", i8}});
}

std::optional<Rounding> rounding_of(const Graph& graph, ValueId bytes) {
  if (!graph.is_op(bytes, Op::astype) || graph.type(bytes).dtype != i8) return std::nullopt;
  Rounding found{.rounded = graph[bytes].inputs[0], .bytes = bytes};
  if (!graph.is_op(found.rounded, Op::round)) return std::nullopt;
  found.bounded = graph[found.rounded].inputs[0];
  if (number_beside(graph, found.bounded, Op::maximum) != -kMostByte) return std::nullopt;
  found.scaled = graph[found.bounded].inputs[0];
  const auto inverse = number_beside(graph, found.scaled, Op::multiply);
  if (!inverse) return std::nullopt;
  found.x = graph[found.scaled].inputs[0], found.inverse = *inverse;
  return graph.type(found.x) == TensorType{graph.type(bytes).shape, f32} ? std::optional(found)
                                                                         : std::nullopt;
}

Graph round_rows(const Graph& graph) {
  std::map<ValueId, RoundedRows> known;  // products of the same rows share them
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (node.op != Op::quantized_matmul || graph.type(node.inputs[0]).dtype == i8)
      return std::nullopt;
    std::vector<ValueId> inputs = r.inputs(node);
    const auto [rows, is_new] = known.try_emplace(inputs[0]);
    if (is_new) rows->second = rounded(r.to(), inputs[0], node.where);
    inputs[0] = rows->second.bytes;
    inputs.push_back(rows->second.scales);
    return r.to().add(node.op, std::move(inputs), node.attrs, node.where);
  });
}

}  // namespace tensor

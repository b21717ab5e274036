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

}  // namespace

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

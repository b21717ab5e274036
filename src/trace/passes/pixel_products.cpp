#include "src/trace/passes/pixel_products.h"

#include "src/ops/pair.h"
#include "src/trace/rewrite.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

bool is_of_pixels(const Graph& graph, const Node& node) {
  if (node.op != Op::conv2d || node.attrs.integer("groups") != 1) return false;
  const Pair padding = pair_of(node.attrs, "padding", 0, "conv2d");
  const auto is_one = [](const Shape& s) { return s[2] == 1 && s[3] == 1; };
  return is_one(graph.type(node.inputs[0]).shape) && is_one(graph.type(node.inputs[1]).shape) &&
         padding.h == 0 && padding.w == 0;
}

}  // namespace

Graph pixel_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (!is_of_pixels(graph, node)) return std::nullopt;
    const auto in = r.inputs(node);
    const auto viewed = [&](Op op, ValueId id, Attrs attrs) {
      return r.to().add(op, {id}, std::move(attrs), node.where);
    };
    const Shape &x = r.to().type(in[0]).shape, &w = r.to().type(in[1]).shape;
    const Ints rows{x[0], x[1]}, columns{w[0], w[1]}, result{x[0], w[0], 1, 1};
    const ValueId left = viewed(Op::reshape, in[0], {{"shape", rows}});
    const auto turned = [&](ValueId filters) {
      // Kernels know a constant by its node.
      if (r.to().is_constant(filters))
        return r.to().add_constant(
            transpose(reshape(r.to()[filters].constant, {columns[0], columns[1]})), node.where);
      return viewed(Op::transpose, viewed(Op::reshape, filters, {{"shape", columns}}),
                    {{"axes", Ints{1, 0}}});
    };
    const ValueId right = turned(in[1]);
    ValueId sum = r.to().add(Op::matmul, {left, right}, {}, node.where);
    if (in.size() > 2) sum = r.to().add(Op::add, {sum, in[2]}, {}, node.where);
    return viewed(Op::reshape, sum, {{"shape", result}});
  });
}

}  // namespace tensor

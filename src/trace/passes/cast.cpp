#include "src/trace/passes/cast.h"

#include <map>

#include "src/trace/rewrite.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

bool is_float32_product(const Node& node) {
  return (node.op == Op::matmul || node.op == Op::conv2d) && node.type.dtype == f32;
}

class Narrower {
 public:
  using Convert = std::function<Tensor(const Tensor&, DType)>;
  Narrower(Rewriter& rewriter, DType dtype, const Convert& converted)
      : rewriter_(rewriter), dtype_(dtype), converted_(converted) {}

  // The value in the narrow type, made once.
  ValueId operator()(ValueId id) {
    if (const auto known = narrow_.find(id); known != narrow_.end()) return known->second;
    const Node node = rewriter_.to()[id];
    ValueId result = -1;
    if (node.kind == NodeKind::constant) {
      result = rewriter_.to().add_constant(converted_(node.constant, dtype_), node.where);
      forget_pages(node.constant);
    } else if (node.kind == NodeKind::operation && info(node.op).pattern == Pattern::view) {
      result = rewriter_.to().add(node.op, {(*this)(node.inputs[0])}, node.attrs, node.where);
    } else {
      result = rewriter_.to().add(Op::astype, {id}, {{"dtype", dtype_}}, node.where);
    }
    narrow_.emplace(id, result);
    return result;
  }

 private:
  Rewriter& rewriter_;
  const DType dtype_;
  const Convert& converted_;
  std::map<ValueId, ValueId> narrow_;
};

}  // namespace

Graph cast_products(const Graph& graph, DType dtype,
                    const std::function<Tensor(const Tensor&, DType)>& converted) {
  std::optional<Narrower> narrow;
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (!narrow) narrow.emplace(r, dtype, converted);
    if (!is_float32_product(node)) return std::nullopt;
    const auto in = r.inputs(node);
    const ValueId left = (*narrow)(in[0]), right = (*narrow)(in[1]);
    const ValueId product = r.to().add(node.op, {left, right}, node.attrs, node.where);
    const ValueId wide = r.to().add(Op::astype, {product}, {{"dtype", f32}}, node.where);
    if (in.size() < 3) return wide;
    // A convolution's bias is added in float32.
    const ValueId bias = r.to().add(Op::reshape, {in[2]}, {{"shape", Ints{-1, 1, 1}}}, node.where);
    return r.to().add(Op::add, {wide, bias}, {}, node.where);
  });
}

Graph round_products(const Graph& graph) {
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (!is_float32_product(node)) return std::nullopt;
    Attrs attrs = node.attrs;
    attrs.set("tf32", true);
    return r.to().add(node.op, r.inputs(node), attrs, node.where);
  });
}

}  // namespace tensor

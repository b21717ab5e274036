#include "src/trace/passes/cast.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/trace/derived.h"
#include "src/trace/fuse.h"
#include "src/trace/rewrite.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

bool is_float32_product(const Node& node) {
  return (node.op == Op::matmul || node.op == Op::conv2d) && node.type.dtype == f32;
}

// With more a pass of its own costs less than correcting the products (measured on an H200).
constexpr std::int64_t kFewRows = 2048;
constexpr std::size_t kMostBehindProduct = 6;  // operators, so that they fit into one group

// Whether it is, in f32, a value that was rounded to `dtype`.
bool is_widened(const Graph& graph, ValueId id, DType dtype) {
  if (!graph.is_op(id, Op::astype) || graph.type(id).dtype != f32) return false;
  const ValueId rounded = graph[id].inputs[0];
  return graph.is_op(rounded, Op::astype) && graph.type(rounded).dtype == dtype;
}

// Whether the caller does not get the value, and all that read it are as given.
template <class Predicate>
bool all_read(const Wiring& wires, ValueId id, Predicate&& as) {
  const auto& readers = wires.readers[at(id)];
  return !wires.returned[at(id)] && !readers.empty() &&
         std::all_of(readers.begin(), readers.end(), as);
}

// A layer_norm by constants of which only products by constants read the result, in `dtype`.
bool is_norm_of_products(const Graph& graph, const Wiring& wires, ValueId id, DType dtype) {
  const auto is_constant = [&](ValueId input) { return graph.is_constant(wires.root[at(input)]); };
  const auto& inputs = graph[id].inputs;
  return graph.is_op(id, Op::layer_norm) && inputs.size() == 3 && graph.type(id).dtype == f32 &&
         std::all_of(inputs.begin() + 1, inputs.end(), is_constant) &&
         all_read(wires, id, [&](ValueId cast) {
           return graph.is_op(cast, Op::astype) && graph.type(cast).dtype == dtype &&
                  all_read(wires, cast, [&](ValueId product) {
                    return graph.is_op(product, Op::matmul) &&
                           is_constant(graph[product].inputs[1]);
                  });
         });
}

// Whether the last operators that compute a value are a product of rows as long as its own and what
// can be computed with it, all for this value alone: one kernel then has whole pieces of its rows,
// unless several devices add up the product, which counts as well where `is_divided`.
bool is_from_product(const Graph& graph, const Wiring& wires, ValueId id, bool is_divided = false) {
  const auto is_passed = [&](ValueId value) {
    return is_compute(graph, value) && (info(graph[value].op).pattern == Pattern::elementwise ||
                                        (is_divided && graph[value].op == Op::all_reduce));
  };
  if (!is_passed(id) || graph.type(id).shape.rank() == 0) return false;
  const std::int64_t width = graph.type(id).shape.back();
  std::vector<ValueId> open = {id};
  for (std::size_t next = 0; next < open.size() && next < kMostBehindProduct; ++next)
    for (const ValueId input : graph[open[next]].inputs) {
      if (wires.returned[at(input)] || wires.readers[at(input)].size() != 1) continue;
      if (graph.is_op(input, Op::matmul))
        return graph.type(input).shape.rank() > 0 && graph.type(input).shape.back() == width &&
               wires.root[at(input)] == input;
      if (is_passed(input)) open.push_back(input);
    }
  return false;
}

// Sums of the residual stream, and what they add a product's result to.
std::vector<bool> residuals_of(const Graph& graph, const Wiring& wires) {
  std::vector<bool> found(at(graph.size()));
  const auto is_ours = [&](ValueId id) {
    return is_compute(graph, id) && graph.type(id).dtype == f32 && !wires.returned[at(id)];
  };
  const auto readers = [&](ValueId id) -> const auto& { return wires.readers[at(id)]; };
  for (ValueId id = 0; id < graph.size(); ++id) {
    if (!graph.is_op(id, Op::add) || graph.type(id).dtype != f32) continue;
    for (const std::size_t side : {0, 1}) {
      const ValueId product = graph[id].inputs[side], other = graph[id].inputs[1 - side],
                    kept = wires.root[at(other)];
      if (graph.is_constant(kept) || graph.type(other) != graph.type(id) ||
          readers(product).size() != 1 || !is_from_product(graph, wires, product, true))
        continue;
      if (is_ours(kept) && readers(kept).size() > 1) found[at(kept)] = true;
      const bool is_normalised =
          readers(id).size() == 1 && graph.is_op(readers(id)[0], Op::layer_norm);
      if (is_ours(id) && (readers(id).size() > 1 || is_normalised)) found[at(id)] = true;
    }
  }
  return found;
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
    if (is_widened(rewriter_.to(), id, dtype_)) {
      result = node.inputs[0];  // there is nothing to round
    } else if (node.kind == NodeKind::constant) {
      result = rewriter_.to().add_constant(narrowed(node.constant), node.where);
    } else if (node.kind == NodeKind::operation && info(node.op).pattern == Pattern::view) {
      result = rewriter_.to().add(node.op, {(*this)(node.inputs[0])}, node.attrs, node.where);
    } else {
      result = rewriter_.to().add(Op::astype, {id}, {{"dtype", dtype_}}, node.where);
    }
    narrow_.emplace(id, result);
    return result;
  }

 private:
  Tensor narrowed(const Tensor& constant) const {
    const std::string what = "converted to " + std::string(name(dtype_));
    return derived_for_others(rewriter_.to(), what, {constant},
                              [constant, dtype = dtype_, converted = converted_] {
                                const Tensor result = converted(constant, dtype);
                                forget_pages(constant);
                                return result;
                              });
  }

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
    const ValueId bias = r.reshaped(in[2], {node.type.shape[1], 1, 1}, node.where);
    return r.to().add(Op::add, {wide, bias}, {}, node.where);
  });
}

Graph cast_rows(const Graph& graph, DType dtype) {
  const Wiring wires = wiring(graph);
  const Narrower::Convert converted = &astype;
  std::optional<Narrower> narrow;
  return rewrite(graph, [&](Rewriter& r, ValueId id, const Node& node) -> std::optional<ValueId> {
    if (!narrow) narrow.emplace(r, dtype, converted);
    if (!is_quantized(graph, id) || graph.type(node.inputs[0]).dtype != f32) return std::nullopt;
    const ValueId rows = wires.root[at(node.inputs[0])];
    const bool is_for_products = all_read(wires, rows, [&](ValueId reader) {
      return is_quantized(graph, reader) ||
             (graph.is_op(reader, Op::astype) && graph.type(reader).dtype == dtype);
    });
    if (!is_compute(graph, rows) || !is_for_products) return std::nullopt;
    std::vector<ValueId> inputs = r.inputs(node);
    inputs[0] = (*narrow)(inputs[0]);
    return r.to().add(node.op, inputs, node.attrs, node.where);
  });
}

Graph cast_residuals(const Graph& graph, DType dtype) {
  const Wiring wires = wiring(graph);
  const std::vector<bool> found = residuals_of(graph, wires);
  const Narrower::Convert converted = &astype;
  std::optional<Narrower> narrow;
  return rewrite(graph, [&](Rewriter& r, ValueId id, const Node& node) -> std::optional<ValueId> {
    if (!narrow) narrow.emplace(r, dtype, converted);
    if (node.op == Op::astype && node.type.dtype == dtype && found[at(node.inputs[0])])
      return (*narrow)(r(node.inputs[0]));
    if (!found[at(id)]) return std::nullopt;
    return r.to().add(Op::astype, {(*narrow)(r.keep(id))}, {{"dtype", f32}}, node.where);
  });
}

Graph split_casts(const Graph& graph, DType dtype) {
  std::set<ValueId> read;  // casts that have a reader
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    std::vector<ValueId> inputs = r.inputs(node);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ValueId cast = node.inputs[i];
      if (!is_widened(graph, cast, dtype) || read.insert(cast).second) continue;
      const Node& again = graph[cast];
      inputs[i] = r.to().add(again.op, r.inputs(again), again.attrs, again.where);
    }
    return r.to().add(node.op, std::move(inputs), node.attrs, node.where);
  });
}

Graph cast_norms(const Graph& graph, DType dtype) {
  const Wiring wires = wiring(graph);
  const Narrower::Convert converted = &astype;
  std::optional<Narrower> narrow;
  return rewrite(graph, [&](Rewriter& r, ValueId id, const Node& node) -> std::optional<ValueId> {
    if (!narrow) narrow.emplace(r, dtype, converted);
    if (!is_norm_of_products(graph, wires, id, dtype)) return std::nullopt;
    const ValueId source = wires.root[at(node.inputs[0])];
    if (num_elements(node.type.shape) > kFewRows * node.type.shape.back()) return std::nullopt;
    if (source != node.inputs[0] || node.type.shape.back() % kSummed != 0 ||
        !is_from_product(graph, wires, source))
      return std::nullopt;
    auto inputs = r.inputs(node);
    const ValueId rows = (*narrow)(inputs[0]);
    inputs[0] = r.to().add(Op::astype, {rows}, {{"dtype", f32}}, node.where);
    inputs.push_back(r.to().add(Op::row_sums, {rows}, {}, node.where));
    return r.to().add(Op::layer_norm_by_sums, std::move(inputs), node.attrs, node.where);
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

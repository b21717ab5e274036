#include "src/kernels/cuda/gemm/match.h"

#include <algorithm>

#include "src/core/parallel.h"
#include "src/kernels/host/weights.h"
#include "src/ops/eight_bits.h"

namespace tensor::cuda {
namespace {

// Whether row_sums has the rows of the result, and they are written.
bool sums_rows_that_leave(const Graph& graph, const Group& group, const Product& product) {
  const ValueId rows = graph[product.row_sums].inputs[0];
  return graph.type(rows).shape.back() == product.n &&
         std::count(group.writes.begin(), group.writes.end(), rows) > 0 &&
         std::count(group.writes.begin(), group.writes.end(), product.row_sums) > 0;
}

// A product of rows that are i8 already.
bool is_of_bytes(const Graph& graph, ValueId id) {
  if (!graph.is_op(id, Op::quantized_matmul)) return false;
  const auto& inputs = graph[id].inputs;
  return graph.type(inputs[0]).dtype == i8 && graph.is_constant(inputs[1]);
}

}  // namespace

std::optional<Product> match_product(const Graph& graph, const Group& group) {
  Product product;
  for (const ValueId id : group.nodes) {
    if (info(graph[id].op).pattern == Pattern::elementwise)
      product.elementwise.push_back(id);
    else if ((graph[id].op == Op::matmul || is_of_bytes(graph, id)) && product.matmul < 0)
      product.matmul = id;
    else if (graph[id].op == Op::row_sums && product.row_sums < 0)
      product.row_sums = id;
    else
      return std::nullopt;
  }
  if (product.matmul < 0) return std::nullopt;
  const Node& matmul = graph[product.matmul];
  product.left = matmul.inputs[0];
  const auto& reads = group.reads;
  for (const ValueId factor : matmul.inputs)
    if (!std::count(reads.begin(), reads.end(), factor)) return std::nullopt;
  const Shape& left = graph.type(matmul.inputs[0]).shape;
  const std::int64_t elements = num_elements(matmul.type.shape);
  product.dtype = graph.type(matmul.inputs[0]).dtype;
  product.is_tf32 = matmul.attrs.flag("tf32", false) && product.dtype == f32;
  product.n = matmul.type.shape.back();
  product.k = left.back();
  product.m = left[left.rank() - 2];
  if (elements == 0 || product.k == 0) return std::nullopt;
  product.batches = elements / (product.m * product.n);
  product.batch = matmul.type.shape;
  product.batch.erase(product.batch.rank() - 1);
  product.batch.erase(product.batch.rank() - 1);
  product.is_constant = graph.is_constant(matmul.inputs[1]);
  const bool is_of_bytes = product.dtype == i8;
  product.is_shared =
      is_of_bytes || num_elements(graph.type(matmul.inputs[1]).shape) == product.k * product.n;
  if (!is_of_bytes && !is_floating(product.dtype)) return std::nullopt;
  auto code = element_code(graph, product.elementwise, {{product.matmul, "sum"}});
  if (!code) return std::nullopt;
  if (is_of_bytes) product.column_scales = matmul.inputs[2];
  if (matmul.inputs.size() > 3) product.row_scales = matmul.inputs[3];
  for (const ValueId id : group.writes)
    if (id != product.row_sums && num_elements(graph.type(id).shape) != elements)
      return std::nullopt;
  if (product.row_sums >= 0 && !sums_rows_that_leave(graph, group, product)) return std::nullopt;
  for (const auto& load : code->loads)
    if (num_elements(load.as) != elements) return std::nullopt;
  product.code = std::move(*code);
  return product;
}

std::optional<Product> match_normalized_product(const Graph& graph, const Group& group) {
  const auto matmul = std::find_if(group.nodes.begin(), group.nodes.end(),
                                   [&](ValueId id) { return graph.is_op(id, Op::matmul); });
  if (matmul == group.nodes.end() || !graph.is_constant(graph[*matmul].inputs[1]))
    return std::nullopt;
  const auto lead = match_lead(graph, group, *matmul);
  if (!lead) return std::nullopt;
  Group rest = group;
  std::erase_if(rest.nodes, [&](ValueId id) { return std::ranges::count(lead->nodes, id) > 0; });
  rest.reads.push_back(lead->nodes.back());
  auto product = match_product(graph, rest);
  if (!product || !product->is_shared) return std::nullopt;
  product->left = lead->input;
  product->norm = lead->norm;
  return product;
}

Product with_merged_rows(Product product) {
  product.m *= product.batches;
  product.batches = 1;
  return product;
}

std::optional<Factor> left_factor(const LaidOutGraph& laid, const Product& product) {
  const ValueId left = product.left;
  Factor factor = Factor::of(laid.layouts[at(left)], left, product.batch);
  if (product.batches > 1 || product.m == factor.rows) return factor;
  // Rows of all batches as those of one: the axes that are left must follow from the row's.
  const Layout& layout = laid.layouts[at(left)];
  std::int64_t step = 1, stride = 0;
  const int rank = layout.shape.rank();
  for (int axis = rank - 2; axis >= 0; --axis) {
    const std::int64_t extent = layout.shape[axis];
    if (extent == 1) continue;
    if (step == 1) stride = layout.strides[axis];
    if (layout.strides[axis] != stride * step) return std::nullopt;
    step *= extent;
  }
  if (step != product.m) return std::nullopt;
  Factor merged{left, product.m, factor.k, stride, factor.k_stride};
  merged.offset = factor.offset;
  return merged;
}

Factor right_factor(const LaidOutGraph& laid, const Product& product) {
  const ValueId right = laid.graph[product.matmul].inputs[1];
  return right_factor(laid.layouts[at(right)], right, product);
}

Factor right_factor(const Layout& layout, ValueId right, const Product& product) {
  return Factor::of(layout, right, product.is_shared ? Shape{} : product.batch, true);
}

namespace {

Source packed_bytes(ValueId value, const Product& product, int operand, Lowered& lowered) {
  const std::int64_t k = product.k, n = product.n, pitch = in_chunks(k, i8);
  lowered.packed.push_back(
      {{operand},
       std::to_string(n) + " features of " + std::to_string(k) + " bytes in rows of " +
           std::to_string(pitch),
       [=](const std::vector<Tensor>& weights) {
         const Tensor strips = weights[0].transpose({0, 2, 1, 3});
         const Tensor rows = strips.reshape({strips.shape(0) * kByteColumns, -1});
         const Shape shape{n, pitch};
         return cpu::spread(rows(slice(0, n), slice(0, k)), shape, row_major(shape),
                            tensor::threads());
       }});
  return {Factor::dense(value, 1, n, k, pitch),
          {Pointer::Base::packed, static_cast<int>(lowered.packed.size()) - 1, 0}};
}

// The packed factor lies in rows of features, or turned, of depths.
Source packed_lines(const LaidOutGraph& laid, const Product& product, int operand, bool is_turned,
                    Lowered& lowered) {
  const ValueId value = laid.graph[product.matmul].inputs[1];
  const std::int64_t pitch = in_chunks(is_turned ? product.n : product.k);
  const auto in_lines = [=](Shape shape) {
    const int rank = shape.rank();
    if (!is_turned) std::swap(shape[rank - 1], shape[rank - 2]);
    shape[rank - 1] = pitch;
    return shape;
  };
  lowered.packed.push_back(
      {{operand},
       (is_turned ? "depths in rows of " : "features in rows of ") + std::to_string(pitch),
       [=](const std::vector<Tensor>& weights) {
         const Tensor lines = is_turned ? weights[0] : weights[0].swapaxes(-1, -2);
         const Shape shape = in_lines(weights[0].shape());
         return cpu::spread(lines, shape, row_major(shape), tensor::threads());
       }});
  // Where matrices of the batch lie then.
  Layout layout{laid.graph.type(value).shape, {}, 0};
  layout.strides = row_major(in_lines(layout.shape));
  const int rank = layout.shape.rank();
  if (!is_turned) std::swap(layout.strides[rank - 1], layout.strides[rank - 2]);
  return {right_factor(layout, value, product).settled(),
          {Pointer::Base::packed, static_cast<int>(lowered.packed.size()) - 1, 0}};
}

}  // namespace

Source packed_right(const LaidOutGraph& laid, const Product& product, int operand,
                    Lowered& lowered) {
  const ValueId value = laid.graph[product.matmul].inputs[1];
  return product.dtype == i8 ? packed_bytes(value, product, operand, lowered)
                             : packed_lines(laid, product, operand, false, lowered);
}

Source turned_right(const LaidOutGraph& laid, const Product& product, int operand,
                    Lowered& lowered) {
  return packed_lines(laid, product, operand, true, lowered);
}

}  // namespace tensor::cuda

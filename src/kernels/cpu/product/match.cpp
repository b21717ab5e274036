#include "src/kernels/cpu/product/match.h"

#include <algorithm>

#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/elementwise.h"
#include "src/kernels/match/block_shape.h"
#include "src/trace/passes/round_rows.h"

namespace tensor::cpu {
namespace {

// One number a column.
bool is_constant_vector(const Graph& graph, const AnchoredProduct& product, ValueId id) {
  if (!graph.is_constant(id) || !is_float(graph.type(id).dtype)) return false;
  const Shape &own = graph.type(id).shape, &shape = graph[product.anchor].type.shape;
  const int lead = shape.rank() - own.rank(), column = column_axis(graph, product);
  if (lead < 0 || column < lead) return false;
  for (int axis = lead; axis < shape.rank(); ++axis)
    if (own[axis - lead] != (axis == column ? shape[axis] : 1)) return false;
  return true;
}

class Matcher {
 public:
  Matcher(const Graph& graph, const Group& group, bool rounds)
      : graph_(graph), group_(group), rounds_(rounds) {}

  std::optional<AnchoredProduct> run() {
    if (!find_anchor() || !find_result() || !shapes_fit()) return std::nullopt;
    follow_sums();
    return find_epilogue() ? std::optional(product_) : std::nullopt;
  }

 private:
  bool is_read(ValueId id) const {
    return std::find(group_.reads.begin(), group_.reads.end(), id) != group_.reads.end();
  }

  bool find_anchor() {
    for (const ValueId id : group_.nodes) {
      const bool is_product =
          graph_.is_op(id, Op::matmul) || graph_.is_op(id, Op::conv2d) || is_quantized(graph_, id);
      if (!is_product) continue;
      if (product_.anchor >= 0) return false;
      product_.anchor = product_.sums = id;
    }
    if (product_.anchor < 0) return false;
    const auto& inputs = graph_[product_.anchor].inputs;
    product_.left = inputs[0];
    if (rounds_ && !is_read(inputs[0]) && is_rounded()) {
      product_.left = graph_[inputs[0]].inputs[0];
      taken_.push_back(inputs[0]);
    }
    return is_read(product_.left) &&
           std::all_of(inputs.begin() + 1, inputs.end(), [&](ValueId id) { return is_read(id); }) &&
           (is_quantized(graph_, product_.anchor) ||
            (is_float(graph_.type(inputs[0]).dtype) &&
             graph_.type(inputs[0]).dtype == graph_.type(inputs[1]).dtype));
  }

  // One value; or its bytes, with it or its cast to a narrower type, or without.
  bool find_result() {
    product_.result = group_.writes.front();
    if (is_quantized(graph_, product_.anchor))
      for (const ValueId id : group_.writes)
        if (const auto rounding = rounding_of(graph_, id)) return find_bytes(*rounding);
    return group_.writes.size() == 1;
  }

  bool find_bytes(const Rounding& rounding) {
    const auto has = [](const std::vector<ValueId>& list, ValueId id) {
      return std::count(list.begin(), list.end(), id) > 0;
    };
    for (const ValueId id : rounding.nodes()) {
      if (!has(group_.nodes, id) || has(group_.writes, id) != (id == rounding.bytes)) return false;
      taken_.push_back(id);
    }
    product_.bytes = rounding.bytes, product_.inverse = rounding.inverse;
    product_.result = rounding.x;
    if (group_.writes.size() == 1) return true;
    product_.result = group_.writes[group_.writes.front() == rounding.bytes ? 1 : 0];
    const bool is_cast = graph_.is_op(product_.result, Op::astype) &&
                         graph_[product_.result].inputs[0] == rounding.x;
    return group_.writes.size() == 2 && (product_.result == rounding.x || is_cast);
  }

  bool is_rounded() const {
    const Node& node = graph_[product_.anchor];
    const ValueId cast = node.inputs[0];
    const bool is_once = node.op == Op::matmul || (node.op == Op::conv2d && is_of_one_pixel(node));
    return is_once && graph_.is_op(cast, Op::astype) &&
           graph_.type(graph_[cast].inputs[0]).dtype == f32 && readers_of(cast).size() == 1;
  }

  bool is_of_one_pixel(const Node& node) const {
    const Shape& filters = graph_.type(node.inputs[1]).shape;
    return filters[2] == 1 && filters[3] == 1;
  }

  std::vector<ValueId> readers_of(ValueId value) const {
    std::vector<ValueId> readers;
    for (const ValueId id : group_.nodes)
      if (std::count(graph_[id].inputs.begin(), graph_[id].inputs.end(), value))
        readers.push_back(id);
    return readers;
  }

  bool shapes_fit() {
    const Node& node = graph_[product_.anchor];
    const TensorType& result = graph_.type(product_.result);
    if (!is_float(result.dtype) || !(result.shape == node.type.shape) ||
        node.type.shape.rank() < 2 || num_elements(node.type.shape) == 0)
      return false;
    const Shape &left = graph_.type(node.inputs[0]).shape,
                &right = graph_.type(node.inputs[1]).shape;
    if (node.op == Op::conv2d)
      return num_elements(left) > 0 && num_elements(right) > 0 && takes_own_bias(node);
    if (node.op == Op::quantized_conv2d) return num_elements(left) > 0;
    if (node.op == Op::quantized_matmul) return left.back() > 0;
    return left.rank() >= 2 && right.rank() >= 2 && left.back() > 0;
  }

  bool takes_own_bias(const Node& node) {
    if (node.inputs.size() < 3) return true;
    product_.bias = node.inputs[2];
    return graph_.is_constant(product_.bias);
  }

  // Through casts, which are exact or wait for the result, and the sum with a bias.
  void follow_sums() {
    while (product_.sums != product_.result) {
      const std::vector<ValueId> readers = readers_of(product_.sums);
      if (readers.size() != 1) return;
      const Node& reader = graph_[readers.front()];
      if (!is_float(reader.type.dtype)) return;
      if (reader.op == Op::add && product_.bias < 0 && reader.inputs[0] != reader.inputs[1]) {
        const ValueId other = reader.inputs[reader.inputs[0] == product_.sums ? 1 : 0];
        if (!is_constant_vector(graph_, product_, other) ||
            !(reader.type.shape == graph_.type(product_.sums).shape))
          return;
        product_.bias = other;
      } else if (reader.op != Op::astype) {
        return;
      }
      taken_.push_back(readers.front());
      product_.sums = readers.front();
    }
  }

  bool find_epilogue() {
    Group& epilogue = product_.epilogue;
    for (const ValueId id : group_.nodes)
      if (id != product_.anchor && std::find(taken_.begin(), taken_.end(), id) == taken_.end())
        epilogue.nodes.push_back(id);
    if (epilogue.nodes.empty()) return product_.sums == product_.result;
    // A program on tiles tells columns from rows by their extent.
    if (graph_[product_.anchor].type.shape[column_axis(graph_, product_)] < 2) return false;
    if (epilogue.nodes.back() != product_.result) return false;
    // A store rounds as the last cast does.
    ValueId last = product_.result;
    if (graph_.is_op(last, Op::astype) && is_float(graph_.type(graph_[last].inputs[0]).dtype) &&
        (epilogue.nodes.size() > 1 || product_.bytes >= 0))
      epilogue.nodes.pop_back(), last = graph_[last].inputs[0];
    if (epilogue.nodes.empty()) return product_.sums == last;
    if (epilogue.nodes.back() != last) return false;
    epilogue.writes = {last};
    for (const ValueId id : epilogue.nodes)
      for (const ValueId input : graph_[id].inputs) {
        const bool inside = std::binary_search(epilogue.nodes.begin(), epilogue.nodes.end(), input);
        if (!inside && !is_read(input) && input != product_.sums) return false;
        if (!inside && !std::count(epilogue.reads.begin(), epilogue.reads.end(), input))
          epilogue.reads.push_back(input);
      }
    const auto shape = block_shape_of(graph_, epilogue);
    return shape && !shape->has_rows && operator_count(graph_, epilogue.nodes) <= kMostOperators &&
           std::count(epilogue.reads.begin(), epilogue.reads.end(), product_.sums);
  }

  const Graph& graph_;
  const Group& group_;
  const bool rounds_;
  AnchoredProduct product_;
  std::vector<ValueId>
      taken_;  // casts, the bias and the rounding, which are no part of the epilogue
};

}  // namespace

std::optional<AnchoredProduct> match_product(const Graph& graph, const Group& group, bool rounds) {
  return Matcher(graph, group, rounds).run();
}

namespace {

// Bounds that a relu, or a maximum or minimum with one number, makes narrower, or the slope of a
// leaky one; nullopt for other operators, where nothing would be left and for a second slope.
std::optional<simd::Bounds> bounded(simd::Bounds bounds, const Graph& graph, const Node& node,
                                    ValueId value) {
  if (!(node.type == graph.type(value))) return std::nullopt;
  double limit = 0;
  if (node.op == Op::maximum || node.op == Op::minimum || node.op == Op::leaky_relu) {
    const ValueId other = node.inputs[node.inputs[0] == value ? 1 : 0];
    if (!graph.is_constant(other) || graph[other].constant.size() != 1) return std::nullopt;
    limit = graph[other].constant.item<double>();
  } else if (node.op != Op::relu) {
    return std::nullopt;
  }
  if (node.op == Op::leaky_relu) {
    // 0 would make NaN of an infinity.
    if (node.inputs[0] != value || bounds.are_any() || !(limit > 0 && limit < 1))
      return std::nullopt;
    bounds.slope = static_cast<float>(limit);
    return bounds;
  }
  const auto number = static_cast<float>(limit);
  if (!(number >= bounds.least && number <= bounds.most)) return std::nullopt;
  (node.op == Op::minimum ? bounds.most : bounds.least) = number;
  return bounds;
}

}  // namespace

AnchoredProduct with_sums_finished(const LaidOutGraph& laid, AnchoredProduct product) {
  const Graph& graph = laid.graph;
  Group& epilogue = product.epilogue;
  const auto reader = [&](std::size_t i) -> const Node& { return graph[epilogue.nodes[i]]; };
  const auto is_only_reader = [&] {
    return std::none_of(epilogue.nodes.begin() + 1, epilogue.nodes.end(), [&](ValueId id) {
      return std::count(graph[id].inputs.begin(), graph[id].inputs.end(), product.sums) > 0;
    });
  };
  const auto take = [&] {
    product.sums = epilogue.nodes.front();
    epilogue.nodes.erase(epilogue.nodes.begin());
    epilogue.reads.clear();
    for (const ValueId id : epilogue.nodes)
      for (const ValueId input : graph[id].inputs)
        if (!std::binary_search(epilogue.nodes.begin(), epilogue.nodes.end(), input) &&
            !std::count(epilogue.reads.begin(), epilogue.reads.end(), input))
          epilogue.reads.push_back(input);
  };
  const auto is_float32 = [&](ValueId id) { return graph.type(id).dtype == f32; };
  const auto take_addend = [&] {
    if (epilogue.nodes.empty() || reader(0).op != Op::add || !is_only_reader()) return;
    const auto& inputs = reader(0).inputs;
    const ValueId other = inputs[inputs[0] == product.sums ? 1 : 0];
    Shape rows = graph.type(product.sums).shape;
    const int column = column_axis(graph, product);
    Strides strides = laid.layouts[at(other)].strides;
    if (other == product.sums || !is_float32(other) || !is_float32(product.sums) ||
        !(graph.type(other).shape == rows) || strides[column] != 1)
      return;
    rows.erase(column), strides.erase(column);
    if (Access(rows, strides).stride()) product.added = other, take();
  };
  take_addend();
  while (!epilogue.nodes.empty() && is_float32(product.sums) && is_only_reader()) {
    const auto bounds = bounded(product.bounds, graph, reader(0), product.sums);
    if (!bounds) break;
    product.bounds = *bounds, take();
  }
  // Without bounds, weights have them already.
  if (!product.bounds.are_any()) return product;
  const auto take_constant = [&](Op op, ValueId& constant) {
    if (epilogue.nodes.empty() || reader(0).op != op || !is_only_reader()) return;
    const auto& inputs = reader(0).inputs;
    const ValueId other = inputs[inputs[0] == product.sums ? 1 : 0];
    const bool is_number = graph.is_constant(other) && graph[other].constant.size() == 1;
    if (!(is_number || is_constant_vector(graph, product, other)) || !is_float32(other) ||
        !(graph.type(product.sums) == reader(0).type))
      return;
    constant = other, take();
  };
  take_constant(Op::multiply, product.scale);
  take_constant(Op::add, product.shift);
  if (product.added < 0) {
    take_addend();
    product.adds_last = product.added >= 0;
  }
  return product;
}

AnchoredProduct with_sums_stored(const LaidOutGraph& laid, AnchoredProduct product) {
  const AnchoredProduct finished = with_sums_finished(laid, product);
  const bool is_stored = finished.epilogue.nodes.empty() && !finished.adds_last &&
                         finished.scale < 0 && finished.shift < 0;
  return is_stored ? finished : product;
}

std::vector<float> column_numbers(const Graph& graph, ValueId id, std::int64_t columns,
                                  float otherwise) {
  const auto count = static_cast<std::size_t>(columns);
  if (id < 0) return std::vector<float>(count, otherwise);
  std::vector<float> values = graph[id].constant.to_vector<float>();
  if (values.size() == 1) values.resize(count, values.front());
  return values;
}

int column_axis(const Graph& graph, const AnchoredProduct& product) {
  const Node& node = graph[product.anchor];
  const bool is_image = node.op == Op::conv2d || node.op == Op::quantized_conv2d;
  return is_image ? 1 : node.type.shape.rank() - 1;
}

}  // namespace tensor::cpu

#include "src/trace/layout.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "src/trace/rewrite.h"

namespace tensor {
namespace {

Dims identity_order(int rank) {
  Dims order;
  for (int axis = 0; axis < rank; ++axis) order.push_back(axis);
  return order;
}

// The axes from the outermost to the innermost; an axis of extent 1, or along which the value is
// broadcast, has no say and comes first.
Dims order_of(const Shape& shape, const Strides& strides) {
  Dims order = identity_order(shape.rank());
  const auto reach = [&](std::int64_t axis) {
    const int i = static_cast<int>(axis);
    return shape[i] == 1 || strides[i] == 0 ? std::numeric_limits<std::int64_t>::max()
                                            : std::abs(strides[i]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return reach(a) > reach(b); });
  return order;
}

bool is_image(Op op) {
  return op == Op::conv2d || op == Op::quantized_conv2d || op == Op::max_pool2d ||
         op == Op::avg_pool2d || op == Op::interpolate || op == Op::roi_align;
}

// Operators whose result lies in the order of their operand: elementwise ones, and what puts images
// side by side or into larger ones, with zeros around them or with lines of their own.
bool keeps_order(Op op) {
  return info(op).pattern == Pattern::elementwise || op == Op::concatenate || op == Op::pad ||
         op == Op::take;
}

// Whether an operand of this shape has an order for the result.
bool is_alike(const Shape& operand, const Node& node) {
  return operand == node.type.shape || (operand.rank() == node.type.shape.rank() &&
                                        info(node.op).pattern != Pattern::elementwise);
}

// What values are made into, perhaps by operators that keep their order.
struct Ends {
  std::vector<bool> images;  // that an operator on images reads
  std::vector<bool> rows;    // of the last axis, that are normalized
  std::vector<bool> turned;  // an image of which its channels are such rows
};

Ends ends_of(const Graph& graph) {
  const std::vector<bool> none(at(graph.size()));
  Ends ends{none, none, none};
  for (ValueId id = graph.size() - 1; id >= 0; --id) {
    const Node& node = graph[id];
    if (node.kind != NodeKind::operation) continue;
    if (is_image(node.op)) ends.images[at(node.inputs[0])] = true;
    if (node.op == Op::layer_norm) ends.rows[at(node.inputs[0])] = true;
    if (node.op == Op::transpose && ends.rows[at(id)] &&
        node.attrs.dims("axes") == Dims{0, 2, 3, 1})
      ends.images[at(node.inputs[0])] = ends.turned[at(node.inputs[0])] = true;
    for (std::vector<bool>* leads : {&ends.images, &ends.rows, &ends.turned}) {
      if (!keeps_order(node.op) || !(*leads)[at(id)]) continue;
      for (const ValueId input : node.inputs)
        if (is_alike(graph.type(input).shape, node)) (*leads)[at(input)] = true;
    }
  }
  return ends;
}

class Placer {
 public:
  Placer(const Graph& graph, const std::vector<Layout>& inputs)
      : graph_(graph),
        inputs_(inputs),
        readers_(consumers(graph)),
        ends_(ends_of(graph)),
        rewriter_(graph) {}

  LaidOutGraph run() {
    for (ValueId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (node.kind == NodeKind::operation && info(node.op).pattern == Pattern::view)
        place_view(id, node);
      else
        place_value(id, node);
    }
    LaidOutGraph result{rewriter_.finish(), {}};
    result.layouts = std::move(layouts_);
    return result;
  }

 private:
  const Layout& layout(ValueId id) const { return layouts_[at(id)]; }

  void place_value(ValueId id, const Node& node) {
    const ValueId kept = rewriter_.keep(id);
    rewriter_.replace(id, kept);
    Strides strides = row_major(node.type.shape);
    if (node.kind == NodeKind::constant) strides = node.constant.strides();
    if (node.kind == NodeKind::operation)
      strides = strides_in_order(node.type.shape, chosen_order(id, node));
    layouts_.push_back({node.type.shape, strides, 0});
    if (node.kind == NodeKind::input && !inputs_.empty()) layouts_.back() = inputs_[next_input_++];
  }

  void place_view(ValueId id, const Node& node) {
    ValueId source = rewriter_(node.inputs[0]);
    const auto seen_through = [&] {
      return info(node.op).view(rewriter_.to().type(source), layout(source).strides, node.attrs);
    };
    auto view = seen_through();
    if (!view) {
      const Shape shape = rewriter_.to().type(source).shape;
      const Dims order = order_of_copy(shape, source_of(source), id);
      source = rewriter_.to().add(Op::copy, {source}, {}, node.where);
      layouts_.push_back({shape, strides_in_order(shape, order), 0});
      view = seen_through();
    }
    const std::int64_t base = layout(source).offset;
    rewriter_.replace(id, rewriter_.to().add(node.op, {source}, node.attrs, node.where));
    layouts_.push_back({view->shape, view->strides, base + view->offset});
  }

  // Of what a value of the result is a view.
  ValueId source_of(ValueId id) const {
    const Graph& graph = rewriter_.to();
    while (graph[id].kind == NodeKind::operation && info(graph[id].op).pattern == Pattern::view)
      id = graph[id].inputs[0];
    return id;
  }

  // The order of a copy of `source` that a view needs: the one in which an image that is joined
  // from its axes has its channels last, where each is of one axis of the image, and an operator on
  // images makes or reads it; else row-major.
  Dims order_of_copy(const Shape& shape, ValueId source, ValueId view) const {
    const Dims plain = identity_order(shape.rank());
    if (view < 0 || !graph_.is_op(view, Op::reshape) || num_elements(shape) == 0) return plain;
    const Node& made = rewriter_.to()[source];
    if (!ends_.images[at(view)] && !(made.kind == NodeKind::operation && is_image(made.op)))
      return plain;
    const Shape& image = graph_.type(view).shape;
    std::array<Dims, 4> axes;
    int axis = 0;
    if (image.rank() != 4) return plain;
    for (int i = 0; i < 4; ++i)
      for (std::int64_t left = image[i]; left > 1; left /= shape[axis++]) {
        if (left % shape[axis] != 0) return plain;
        axes.begin()[i].push_back(axis);
      }
    Dims order;
    for (; axis < shape.rank(); ++axis) order.push_back(axis);  // of extent 1
    for (const int i : {0, 2, 3, 1})
      for (const std::int64_t part : axes.begin()[i]) order.push_back(part);
    return order;
  }

  Dims chosen_order(ValueId id, const Node& node) const {
    const int rank = node.type.shape.rank();
    if (is_image(node.op)) return {0, 2, 3, 1};
    if (node.op == Op::all_reduce) {  // NCCL adds element by element as they lie
      const Layout& operand = layout(rewriter_(node.inputs[0]));
      return order_of(operand.shape, operand.strides);
    }
    if (node.op == Op::copy) {  // as place_view makes them
      const auto& readers = readers_[at(id)];
      const ValueId source = source_of(rewriter_(node.inputs[0]));
      return readers.size() == 1 ? order_of_copy(node.type.shape, source, readers.front())
                                 : identity_order(rank);
    }
    if (const auto order = wanted_by_reader(id, node)) return *order;
    // What is taken of anything but images is mostly rows, for whoever reads them next.
    const bool is_rows = node.op == Op::take && !ends_.images[at(id)];
    if (keeps_order(node.op) && !is_rows)
      for (const ValueId input : node.inputs) {
        const Layout& operand = layout(rewriter_(input));
        if (!is_alike(operand.shape, node) || graph_.is_constant(input)) continue;
        // What was reshaped, as rows that were normalized, has forgotten that it was an image.
        if (graph_.is_op(input, Op::reshape) && ends_.images[at(id)]) return {0, 2, 3, 1};
        // Rows whose elements lie far apart are slow to normalize; this operator turns them.
        if (ends_.rows[at(id)]) return identity_order(rank);
        if (ends_.turned[at(id)]) return {0, 2, 3, 1};
        return order_of(operand.shape, operand.strides);
      }
    return identity_order(rank);
  }

  // The order that lets a transpose and reshape of this value be a view, when row-major does not.
  std::optional<Dims> wanted_by_reader(ValueId id, const Node& node) const {
    for (const ValueId transposed : readers_[at(id)]) {
      if (!graph_.is_op(transposed, Op::transpose)) continue;
      const Dims axes = graph_[transposed].attrs.dims("axes");
      const Layout plain =
          *info(Op::transpose)
               .view(node.type, row_major(node.type.shape), graph_[transposed].attrs);
      for (const ValueId reshaped : readers_[at(transposed)]) {
        if (!graph_.is_op(reshaped, Op::reshape)) continue;
        if (info(Op::reshape).view(graph_.type(transposed), plain.strides, graph_[reshaped].attrs))
          continue;
        Dims order;
        for (const auto axis : axes) order.push_back(normalize_axis(axis, axes.rank(), "layout"));
        return order;
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const std::vector<Layout>& inputs_;
  std::size_t next_input_ = 0;
  const std::vector<std::vector<ValueId>> readers_;
  const Ends ends_;
  Rewriter rewriter_;
  std::vector<Layout> layouts_;
};

}  // namespace

Strides strides_in_order(const Shape& shape, const Dims& order) {
  Strides strides = Strides::filled(shape.rank(), 1);
  std::int64_t step = 1;
  for (int i = order.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(order[i]);
    strides[axis] = step;
    step *= std::max<std::int64_t>(shape[axis], 1);
  }
  return strides;
}

LaidOutGraph lay_out(const Graph& graph, const std::vector<Layout>& inputs) {
  return Placer(graph, inputs).run();
}

}  // namespace tensor

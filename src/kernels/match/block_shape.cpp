#include "src/kernels/match/block_shape.h"

#include <algorithm>

#include "src/core/view.h"
#include "src/kernels/elementwise.h"

namespace tensor {
namespace {

struct RowOp {
  Op op;
  VectorOp code;
};
constexpr RowOp kRowOps[] = {
    {Op::sum, {false, false, 1, 0}},
    {Op::mean, {false, false, 1, 0}},
    {Op::max, {true, false, 1, 0}},
    {Op::min, {true, false, 1, 0}},
    {Op::var, {false, false, 3, 0}},
    {Op::softmax, {false, false, 3, 1}},
    {Op::log_softmax, {false, false, 3, 1}},
    {Op::layer_norm, {false, false, 3, 0}},
    {Op::layer_norm_by_sums, {false, false, 3, 0}},
};

bool is_small_integer(DType dtype) {
  return dtype == boolean || dtype == u8 || dtype == i8 || dtype == i16;
}
bool is_wide_integer(DType dtype) { return dtype == i32 || dtype == i64; }

// Whether every number of one integer type is one of another.
bool holds_all_of(DType wide, DType narrow) {
  if (narrow == boolean || narrow == wide) return true;
  return item_size(wide) > item_size(narrow) && (narrow == u8 || wide != u8);
}

bool is_member(const Group& group, ValueId id) {
  return std::binary_search(group.nodes.begin(), group.nodes.end(), id);
}

// Also through views.
bool has_reader_inside(const Graph& graph, const Group& group, ValueId id) {
  const auto reads = [&](ValueId input) {
    while (input != id && graph[input].kind == NodeKind::operation &&
           info(graph[input].op).pattern == Pattern::view)
      input = graph[input].inputs[0];
    return input == id;
  };
  return std::any_of(group.nodes.begin(), group.nodes.end(), [&](ValueId n) {
    return std::any_of(graph[n].inputs.begin(), graph[n].inputs.end(), reads);
  });
}

// Whether the types of an operator's operands and result keep their meaning as floats.
bool types_fit(const Graph& graph, const Group& group, ValueId id, const VectorOp& code) {
  const Node& node = graph[id];
  const DType to = node.type.dtype;
  if (node.op == Op::astype) {
    const DType from = graph.type(node.inputs[0]).dtype;
    if (to == f64 || from == f64) return false;
    if (is_wide_integer(from) &&
        (is_member(group, node.inputs[0]) || !(is_float(to) || to == boolean)))
      return false;
    if (is_float(to) || to == boolean) return true;
    // A store saturates, as a float does that becomes an integer; integers wrap around.
    return !has_reader_inside(graph, group, id) && (is_float(from) || holds_all_of(to, from));
  }
  const auto fits = [&](DType dtype) {
    return is_float(dtype) || (code.on_integers && is_small_integer(dtype));
  };
  return (fits(to) || to == boolean) &&
         std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId input) { return fits(graph.type(input).dtype); });
}

// The axes that an operator takes as its rows; nullopt when it is elementwise.
std::optional<Dims> row_axes(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  const int rank = graph.type(node.inputs[0]).shape.rank();
  if (node.op == Op::layer_norm || node.op == Op::layer_norm_by_sums) return Dims{rank - 1};
  if (node.op == Op::softmax || node.op == Op::log_softmax)
    return Dims{normalize_axis(node.attrs.integer("axis"), rank, "row")};
  if (info(node.op).pattern != Pattern::reduction) return std::nullopt;
  Dims axes;
  for (const auto axis : node.attrs.dims("axis")) axes.push_back(normalize_axis(axis, rank, "row"));
  std::sort(axes.begin(), axes.end());
  return axes;
}

// A view of a member that leaves its elements in their order: a reshape, by axes of extent 1 unless
// `splits_axes`.
std::optional<ValueId> member_behind(const Graph& graph, const Group& group, ValueId id,
                                     bool splits_axes) {
  const Shape shape = squeezed(graph.type(id).shape);
  while (!is_member(group, id)) {
    const Node& node = graph[id];
    if (node.kind != NodeKind::operation || node.op != Op::reshape) return std::nullopt;
    id = node.inputs[0];
    if (!splits_axes && !(squeezed(graph.type(id).shape) == shape)) return std::nullopt;
  }
  return id;
}

// The fewest axes of which those of both shapes are runs; neither has axes of extent 1.
std::optional<Shape> common_axes(const Shape& a, const Shape& b) {
  if (num_elements(a) != num_elements(b)) return std::nullopt;
  Shape reversed;
  int i = a.rank(), j = b.rank();
  std::int64_t left_a = 1, left_b = 1;
  while (i > 0 || j > 0 || left_a > 1) {
    if (left_a == 1) left_a = a[--i];
    if (left_b == 1) left_b = b[--j];
    const std::int64_t step = std::min(left_a, left_b);
    if (left_a % step != 0 || left_b % step != 0 || reversed.rank() == kMaxRank)
      return std::nullopt;
    reversed.push_back(step);
    left_a /= step, left_b /= step;
  }
  Shape axes;
  for (int axis = reversed.rank(); axis-- > 0;) axes.push_back(reversed[axis]);
  return axes;
}

class Classifier {
 public:
  Classifier(const Graph& graph, const Group& group, bool splits_axes)
      : graph_(graph), group_(group), splits_axes_(splits_axes) {}

  std::optional<BlockShape> run() {
    for (const ValueId id : group_.nodes) {
      const auto code = vector_op(graph_[id].op);
      if (!code || !types_fit(graph_, group_, id, *code) ||
          num_elements(graph_.type(id).shape) == 0)
        return std::nullopt;
    }
    if (!find_block()) return std::nullopt;
    for (const ValueId id : group_.nodes)
      if (!place(id)) return std::nullopt;
    return block_;
  }

 private:
  // The block is what the reductions work on, or else what is written.
  bool find_block() {
    Shape shape = graph_.type(group_.writes.front()).shape;
    for (const ValueId id : group_.nodes) {
      const auto axes = row_axes(graph_, id);
      if (!axes) continue;
      const Shape& input = graph_.type(graph_[id].inputs[0]).shape;
      Dims columns;
      int place = 0;
      for (int axis = 0; axis < input.rank(); ++axis) {
        if (axes->contains(axis) && input[axis] != 1) columns.push_back(place);
        place += input[axis] != 1;
      }
      if (block_.has_rows && !(block_.extents == squeezed(input) && block_.columns == columns))
        return false;
      block_.has_rows = true;
      block_.extents = squeezed(input);
      block_.columns = columns;
    }
    if (!block_.has_rows) block_.extents = squeezed(shape);
    // Rows of one element would be told from their sums by nothing.
    if (block_.has_rows && block_.columns.empty()) return false;
    if (splits_axes_ && !split_axes()) return false;
    rows_ = block_.rows();
    return num_elements(block_.extents) > 0;
  }

  bool split_axes() {
    const Shape whole = block_.extents;
    for (const ValueId id : group_.nodes) {
      const Shape shape = squeezed(graph_.type(id).shape);
      if (num_elements(shape) != num_elements(whole)) continue;
      const auto axes = common_axes(block_.extents, shape);
      if (!axes) return false;
      block_.extents = *axes;
    }
    Dims columns;
    int place = 0;
    for (int axis = 0; axis < whole.rank(); ++axis)
      for (std::int64_t part = 1; part < whole[axis]; part *= block_.extents[place++])
        if (block_.columns.contains(axis)) columns.push_back(place);
    block_.columns = columns;
    return true;
  }

  // Whether a value of this shape has an element for each of `axes`.
  bool covers(const Shape& shape, const Shape& axes) const {
    return shape == axes || (splits_axes_ && common_axes(axes, shape) == axes);
  }

  bool place(ValueId id) {
    const Node& node = graph_[id];
    const Shape shape = squeezed(node.type.shape);
    const bool reduces = row_axes(graph_, id).has_value();
    BlockExtent extent;
    if (covers(shape, block_.extents))
      extent = BlockExtent::element;
    else if (block_.has_rows && covers(shape, rows_))
      extent = BlockExtent::row;
    else
      return false;
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      if (!operand_fits(node, k, extent, reduces)) return false;
    block_.members[id] = extent;
    return true;
  }

  bool operand_fits(const Node& node, std::size_t k, BlockExtent extent, bool reduces) {
    const ValueId input = node.inputs[k];
    const auto known = block_.members.find(input);
    if (known == block_.members.end()) {
      if (std::find(group_.reads.begin(), group_.reads.end(), input) != group_.reads.end())
        return true;
      const auto member = member_behind(graph_, group_, input, splits_axes_);
      if (!member || !block_.members.contains(*member)) return false;
      block_.members[input] = block_.members.at(*member);
    }
    const BlockExtent operand = block_.members.at(input);
    if (reduces) return k == 0 && operand == BlockExtent::element;
    if (operand == BlockExtent::element) return extent == BlockExtent::element;
    if (extent == BlockExtent::row) return true;
    return is_row_of(graph_.type(input).shape, node.type.shape);
  }

  // Whether a value of one number a row is broadcast along the rows, and not along other axes.
  bool is_row_of(const Shape& row, const Shape& shape) const {
    int place = block_.extents.rank();
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const int own = axis - (shape.rank() - row.rank());
      const std::int64_t extent = own < 0 ? 1 : row[own];
      for (std::int64_t part = 1; part < shape[axis]; part *= block_.extents[place])
        if ((extent == 1) != block_.columns.contains(--place)) return false;
    }
    return true;
  }

  const Graph& graph_;
  const Group& group_;
  const bool splits_axes_;
  BlockShape block_;
  Shape rows_;
};

}  // namespace

bool is_float(DType dtype) { return dtype == f32 || dtype == f16 || dtype == bf16; }

std::optional<VectorOp> vector_op(Op op) {
  if (is_elementwise(op)) {
    const Elementwise& row = info(op).elementwise;
    const ElementCost& cost = element_cost(op);
    return VectorOp{row.is_exact, row.on_integers, cost.operators, cost.series};
  }
  const auto row = std::find_if(std::begin(kRowOps), std::end(kRowOps),
                                [&](const RowOp& r) { return r.op == op; });
  return row == std::end(kRowOps) ? std::nullopt : std::optional(row->code);
}

Shape BlockShape::rows() const {
  Shape rows;
  for (int axis = 0; axis < extents.rank(); ++axis)
    if (!columns.contains(axis)) rows.push_back(extents[axis]);
  return rows;
}
std::int64_t BlockShape::column_count() const {
  std::int64_t count = 1;
  for (const auto axis : columns) count *= extents[static_cast<int>(axis)];
  return count;
}
std::int64_t BlockShape::row_count() const { return num_elements(extents) / column_count(); }

std::optional<BlockShape> block_shape_of(const Graph& graph, const Group& group, bool splits_axes) {
  return Classifier(graph, group, splits_axes).run();
}

Shape squeezed(const Shape& shape) {
  Shape result;
  for (const auto extent : shape)
    if (extent != 1) result.push_back(extent);
  return result;
}

Strides strides_over(const Shape& extents, const Layout& layout, const Shape& shape) {
  const Strides strides = broadcast_strides(layout.shape, layout.strides, shape);
  Strides result = Strides::filled(extents.rank(), 0);
  int place = extents.rank();
  for (int axis = shape.rank(); axis-- > 0;)
    for (std::int64_t part = 1; part < shape[axis]; part *= extents[place])
      result[--place] = strides[axis] * part;
  return result;
}

Strides squeezed_strides(const Layout& layout, const Shape& shape) {
  return strides_over(squeezed(shape), layout, shape);
}

}  // namespace tensor

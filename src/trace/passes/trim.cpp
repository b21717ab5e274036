#include "src/trace/passes/trim.h"

#include <algorithm>
#include <optional>

#include "src/trace/derived.h"
#include "src/trace/rewrite.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace tensor {
namespace {

struct Span {
  std::int64_t begin = 0, end = 0;
  std::int64_t extent() const { return end - begin; }
  friend bool operator==(const Span&, const Span&) = default;
};
using Part = std::vector<Span>;  // of a value: a span of every axis

std::size_t at_axis(int axis) { return static_cast<std::size_t>(axis); }

Part whole(const Shape& shape) {
  Part part;
  for (const std::int64_t extent : shape) part.push_back({0, extent});
  return part;
}

Shape shape_of(const Part& part) {
  Shape shape;
  for (const Span& span : part) shape.push_back(span.extent());
  return shape;
}

// The least part that holds both.
void widen(Part& part, const Part& with) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    part[i].begin = std::min(part[i].begin, with[i].begin);
    part[i].end = std::max(part[i].end, with[i].end);
  }
}

// ---- What an operator reads for a part of its result.

struct Reads {
  Op op;
  /// Whether less of its inputs is read for a part of this axis.
  bool (*cuts)(const Graph& graph, const Node& node, int axis);
  Part (*of)(const Graph& graph, const Node& node, std::size_t input, const Part& result);
  /// The attributes with which it makes the part; those that it has unless there is this.
  Attrs (*attrs)(const Node& node, const Part& result) = nullptr;
};

const Shape& shape_in(const Graph& graph, const Node& node, std::size_t input) {
  return graph.type(node.inputs[input]).shape;
}

bool any_axis(const Graph&, const Node&, int) { return true; }
bool others_than_its_axis(const Graph&, const Node& node, int axis) {
  return axis != normalize_axis(node.attrs.integer("axis"), node.type.shape.rank(), "trim");
}
bool not_the_last(const Graph&, const Node& node, int axis) {
  return axis + 1 < node.type.shape.rank();
}

// The axes of the input are the last ones of the result; those of extent 1 are stretched.
Part read_stretched(const Graph& graph, const Node& node, std::size_t input, const Part& result) {
  const Shape& shape = shape_in(graph, node, input);
  Part part = whole(shape);
  const int lead = node.type.shape.rank() - shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] != 1) part[at_axis(axis)] = result[at_axis(axis + lead)];
  return part;
}

Part read_normalized(const Graph& graph, const Node& node, std::size_t input, const Part& result) {
  return input == 0 ? result : whole(shape_in(graph, node, input));
}

Part read_factor(const Graph& graph, const Node& node, std::size_t input, const Part& result) {
  const Shape& shape = shape_in(graph, node, input);
  const int depth = shape.rank() - (input == 0 ? 1 : 2);
  Part part = read_stretched(graph, node, input, result);
  part[at_axis(depth)] = {0, shape[depth]};
  return part;
}

Part read_concatenated(const Graph& graph, const Node& node, std::size_t input,
                       const Part& result) {
  const int axis = normalize_axis(node.attrs.integer("axis"), node.type.shape.rank(), "trim");
  Part part = result;
  part[at_axis(axis)] = {0, shape_in(graph, node, input)[axis]};
  return part;
}

Part read_transposed(const Graph&, const Node& node, std::size_t, const Part& result) {
  const Dims axes = node.attrs.dims("axes");
  Part part(result.size());
  for (int axis = 0; axis < axes.rank(); ++axis)
    part[at_axis(normalize_axis(axes[axis], axes.rank(), "trim"))] = result[at_axis(axis)];
  return part;
}

Part read_sliced(const Graph&, const Node& node, std::size_t, const Part& result) {
  const Dims start = node.attrs.dims("start"), step = node.attrs.dims("step");
  Part part;
  for (int axis = 0; axis < start.rank(); ++axis) {
    const Span& span = result[at_axis(axis)];
    const std::int64_t first = start[axis] + span.begin * step[axis],
                       last = start[axis] + (span.end - 1) * step[axis];
    part.push_back({std::min(first, last), std::max(first, last) + 1});
  }
  return part;
}

// The axis of the reshaped input that an axis of the result is, -1 if there is none.
int same_axis(const Shape& from, const Shape& to, int axis) {
  std::int64_t before = 1, passed = 1;
  for (int i = 0; i < axis; ++i) before *= to[i];
  for (int i = 0; i < from.rank(); passed *= from[i++])
    if (passed == before && from[i] == to[axis]) return i;
  return -1;
}
bool keeps_axis(const Graph& graph, const Node& node, int axis) {
  return same_axis(shape_in(graph, node, 0), node.type.shape, axis) >= 0;
}
Part read_reshaped(const Graph& graph, const Node& node, std::size_t, const Part& result) {
  const Shape& shape = shape_in(graph, node, 0);
  Part part = whole(shape);
  for (int axis = 0; axis < node.type.shape.rank(); ++axis)
    if (const int same = same_axis(shape, node.type.shape, axis); same >= 0)
      part[at_axis(same)] = result[at_axis(axis)];
  return part;
}

Attrs with_shape(const Node&, const Part& result) { return {{"shape", shape_of(result)}}; }

constexpr Reads kElementwise = {Op::count_, any_axis, read_stretched};
constexpr Reads kTable[] = {
    {Op::matmul, not_the_last, read_factor},
    {Op::softmax, others_than_its_axis, read_stretched},
    {Op::log_softmax, others_than_its_axis, read_stretched},
    {Op::layer_norm, not_the_last, read_normalized},
    {Op::concatenate, others_than_its_axis, read_concatenated},
    {Op::reshape, keeps_axis, read_reshaped, with_shape},
    {Op::transpose, any_axis, read_transposed},
    {Op::slice, any_axis, read_sliced},
    {Op::broadcast_to, any_axis, read_stretched, with_shape},
};

const Reads* reads_of(const Node& node) {
  if (node.kind != NodeKind::operation || num_elements(node.type.shape) == 0) return nullptr;
  if (info(node.op).pattern == Pattern::elementwise) return &kElementwise;
  for (const Reads& reads : kTable)
    if (reads.op == node.op) return &reads;
  return nullptr;
}

// ---- The pass.

class Trimmer {
 public:
  explicit Trimmer(const Graph& graph)
      : graph_(graph), stays_whole_(static_cast<std::size_t>(graph.size()), false) {
    do find_parts();
    while (keep_with_siblings());
  }

  Graph trimmed() const {
    Rewriter r(graph_);
    for (ValueId id = 0; id < graph_.size(); ++id)
      if (graph_[id].kind != NodeKind::operation)
        r.replace(id, r.keep(id));
      else if (parts_[at(id)])
        r.replace(id, rebuilt(r, id));
    return r.finish();
  }

 private:
  bool is_whole(ValueId id) const { return *parts_[at(id)] == whole(graph_.type(id).shape); }

  void find_parts() {
    parts_.assign(static_cast<std::size_t>(graph_.size()), std::nullopt);
    for (const ValueId id : graph_.outputs()) parts_[at(id)] = whole(graph_.type(id).shape);
    for (ValueId id = graph_.size() - 1; id >= 0; --id) {
      if (!parts_[at(id)]) continue;
      cut(id);
      const Node& node = graph_[id];
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        std::optional<Part>& part = parts_[at(node.inputs[k])];
        const Part read = read_part(node, id, k);
        part ? widen(*part, read) : void(part = read);
      }
    }
  }

  // What is read of a value becomes what is computed.
  void cut(ValueId id) {
    const Node& node = graph_[id];
    const Reads* reads = stays_whole_[at(id)] ? nullptr : reads_of(node);
    for (int axis = 0; axis < node.type.shape.rank(); ++axis) {
      Span& span = (*parts_[at(id)])[at_axis(axis)];
      const std::int64_t extent = node.type.shape[axis];
      if (!reads || !reads->cuts(graph_, node, axis) || 2 * span.extent() > extent)
        span = {0, extent};
    }
  }

  Part read_part(const Node& node, ValueId id, std::size_t input) const {
    const Reads* reads = reads_of(node);
    return reads ? reads->of(graph_, node, input, *parts_[at(id)])
                 : whole(shape_in(graph_, node, input));
  }

  // Products on the same rows, one of them on all, and what is computed of their elements. Whether
  // there are any that were cut.
  bool keep_with_siblings() {
    bool any = false;
    const auto keep = [&](ValueId id) {
      if (!stays_whole_[at(id)] && !is_whole(id)) stays_whole_[at(id)] = any = true;
    };
    const auto readers = consumers(graph_);
    for (ValueId id = 0; id < graph_.size(); ++id) {
      if (!parts_[at(id)] || graph_[id].kind != NodeKind::operation) continue;
      const Node& node = graph_[id];
      if (node.op == Op::matmul) {
        const auto& siblings = readers[at(node.inputs[0])];
        if (std::any_of(siblings.begin(), siblings.end(), [&](ValueId other) {
              return graph_.is_op(other, Op::matmul) && parts_[at(other)] &&
                     graph_[other].inputs[0] == node.inputs[0] && is_whole(other);
            }))
          keep(id);
      } else if (reads_of(node) == &kElementwise) {
        for (const ValueId input : node.inputs)
          if (stays_whole_[at(input)] && graph_.type(input).shape == node.type.shape) keep(id);
      }
    }
    return any;
  }

  // A part of a value that may have been cut itself.
  ValueId part_of(Rewriter& r, ValueId id, const Part& part) const {
    const Part& have = *parts_[at(id)];
    if (part == have) return r(id);
    Dims start, step;
    for (std::size_t axis = 0; axis < part.size(); ++axis) {
      start.push_back(part[axis].begin - have[axis].begin);
      step.push_back(1);
    }
    const Attrs attrs = {{"start", start}, {"extent", shape_of(part)}, {"step", step}};
    const Node& node = graph_[id];
    if (node.kind == NodeKind::constant) {
      TextWriter what;
      what << "copied slice " << attrs;
      const Tensor cut = derived_for_others(
          r.to(), what.str(), {node.constant},
          [whole = node.constant, attrs] { return copy(apply_op(Op::slice, {whole}, attrs)); });
      return r.to().add_constant(cut, node.where);
    }
    return r.to().add(Op::slice, {r(id)}, attrs, node.where);
  }

  ValueId rebuilt(Rewriter& r, ValueId id) const {
    const Node& node = graph_[id];
    const Part& part = *parts_[at(id)];
    if (node.op == Op::slice) return sliced(r, node, part);
    std::vector<ValueId> inputs;
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      inputs.push_back(part_of(r, node.inputs[k], read_part(node, id, k)));
    const Reads* reads = reads_of(node);
    return r.to().add(node.op, std::move(inputs),
                      reads && reads->attrs ? reads->attrs(node, part) : node.attrs, node.where);
  }

  // A slice of a slice is one.
  ValueId sliced(Rewriter& r, const Node& node, const Part& part) const {
    const Part& have = *parts_[at(node.inputs[0])];
    Dims start = node.attrs.dims("start");
    const Dims step = node.attrs.dims("step");
    for (int axis = 0; axis < start.rank(); ++axis)
      start[axis] += part[at_axis(axis)].begin * step[axis] - have[at_axis(axis)].begin;
    return r.to().add(Op::slice, {r(node.inputs[0])},
                      {{"start", start}, {"extent", shape_of(part)}, {"step", step}}, node.where);
  }

  const Graph& graph_;
  std::vector<bool> stays_whole_;
  std::vector<std::optional<Part>> parts_;  // that are computed; none of what nobody reads
};

}  // namespace

Graph trim(const Graph& graph) { return Trimmer(graph).trimmed(); }

}  // namespace tensor

#include "src/trace/passes/cast_images.h"

#include <map>

#include "src/trace/group.h"
#include "src/trace/passes/round_rows.h"
#include "src/trace/rewrite.h"

namespace tensor {
namespace {

bool is_convolution(const Graph& graph, ValueId id) {
  return graph.is_op(id, Op::conv2d) || graph.is_op(id, Op::quantized_conv2d);
}

// What makes an image of images and works as well on the narrow type: windows over one of them and
// parts side by side.
bool works_narrow(const Graph& graph, ValueId id) {
  return graph.is_op(id, Op::max_pool2d) || graph.is_op(id, Op::avg_pool2d) ||
         graph.is_op(id, Op::interpolate) || graph.is_op(id, Op::concatenate);
}

// An operator that makes an image of an image; one in groups of channels has an axis more, and a
// view may have any shape.
bool keeps_image(const Graph& graph, ValueId id) {
  const Node& node = graph[id];
  return is_view(graph, id) || (node.kind == NodeKind::operation && node.type.shape.rank() >= 4 &&
                                (info(node.op).pattern == Pattern::elementwise ||
                                 works_narrow(graph, id) || node.op == Op::pad));
}

// What goes through all of an image before others can read its result, as the sums of a norm.
bool is_reduction(const Graph& graph, ValueId id) {
  return graph[id].kind == NodeKind::operation && info(graph[id].op).pattern == Pattern::reduction;
}

bool is_cast(const Graph& graph, ValueId id, DType to) {
  return graph.is_op(id, Op::astype) && graph.type(id).dtype == to;
}

// Of every value, whether it is an f32 image with a convolution before and behind it.
std::vector<bool> between_convolutions(const Graph& graph) {
  std::vector<bool> follows(at(graph.size())), leads(at(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id) {
    follows[at(id)] = is_convolution(graph, id);
    if (keeps_image(graph, id))
      for (const ValueId input : graph[id].inputs)
        if (follows[at(input)]) follows[at(id)] = true;
  }
  for (ValueId id = graph.size() - 1; id >= 0; --id) {
    const auto& inputs = graph[id].inputs;
    if (is_convolution(graph, id)) leads[at(inputs[0])] = true;
    if (keeps_image(graph, id) && leads[at(id)])
      for (const ValueId input : inputs) leads[at(input)] = true;
  }
  std::vector<bool> between(at(graph.size()));
  for (ValueId id = 0; id < graph.size(); ++id)
    between[at(id)] = follows[at(id)] && leads[at(id)] && graph.type(id).dtype == f32;
  return between;
}

class ImageCaster {
 public:
  ImageCaster(const Graph& graph, DType dtype)
      : between_(between_convolutions(graph)),
        is_stored_(at(graph.size())),
        is_rounding_(at(graph.size())),
        dtype_(dtype) {
    for (ValueId id = graph.size() - 1; id >= 0; --id)
      if (is_cast(graph, id, dtype) || is_reduction(graph, id) ||
          (works_narrow(graph, id) && between_[at(id)]) ||
          (is_view(graph, id) && is_stored_[at(id)]))
        for (const ValueId input : graph[id].inputs)
          if (between_[at(input)]) is_stored_[at(input)] = true;
    const auto readers = consumers(graph);
    for (ValueId id = 0; id < graph.size(); ++id)
      if (const auto bytes = rounding_of(graph, id); bytes && between_[at(bytes->x)]) {
        is_rounding_[at(bytes->scaled)] = true;
        if (readers[at(bytes->x)].size() > 1) is_stored_[at(bytes->x)] = true;  // for the others
      }
  }

  std::optional<ValueId> operator()(Rewriter& r, ValueId id, const Node& node) {
    if (is_cast(r.from(), id, dtype_) && r.from().type(node.inputs[0]).dtype == f32)
      return narrow(r, r(node.inputs[0]));
    const Graph& from = r.from();
    if (is_convolution(from, id) || !(between_[at(id)] || is_reduction(from, id)))
      return std::nullopt;
    auto inputs = r.inputs(node);
    if (works_narrow(from, id) || (is_view(from, id) && is_stored_[at(id)])) {
      // Values that no convolution made keep their precision.
      for (const ValueId input : node.inputs)
        if (!between_[at(input)]) return std::nullopt;
      for (ValueId& input : inputs) input = narrow(r, input);
      return widen(r, r.to().add(node.op, inputs, node.attrs, node.where));
    }
    if (is_rounding_[at(id)]) return std::nullopt;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (is_stored_[at(node.inputs[i])]) inputs[i] = widen(r, narrow(r, inputs[i]));
    return r.to().add(node.op, inputs, node.attrs, node.where);
  }

 private:
  ValueId narrow(Rewriter& r, ValueId id) {
    // What was widened is there already.
    if (is_cast(r.to(), id, f32)) {
      const ValueId source = r.to()[id].inputs[0];
      if (r.to().type(source).dtype == dtype_) return source;
    }
    const auto [known, is_new] = narrow_.try_emplace(id, -1);
    if (is_new) known->second = cast(r, id, dtype_);
    return known->second;
  }

  ValueId widen(Rewriter& r, ValueId id) { return cast(r, id, f32); }

  static ValueId cast(Rewriter& r, ValueId id, DType dtype) {
    return r.to().add(Op::astype, {id}, {{"dtype", dtype}}, r.to()[id].where);
  }

  const std::vector<bool> between_;  // of the old graph's values
  std::vector<bool> is_stored_;      // in the narrow type, by whoever reads it from memory
  std::vector<bool> is_rounding_;    // begins to round to bytes, where its operand is made
  const DType dtype_;
  std::map<ValueId, ValueId> narrow_;  // of the new graph's values
};

}  // namespace

Graph cast_images(const Graph& graph, DType dtype) {
  return rewrite(graph, ImageCaster(graph, dtype));
}

}  // namespace tensor

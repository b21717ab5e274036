#include "src/trace/passes/transposed_convs.h"

#include <algorithm>

#include "src/core/rounding.h"
#include "src/ops/pair.h"
#include "src/ops/view.h"
#include "src/trace/derived.h"
#include "src/trace/rewrite.h"
#include "src/trace/trace.h"
#include "tensor/neural.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// One of the two axes of an image.
struct Axis {
  Axis(std::int64_t pixels, std::int64_t kernel, std::int64_t result, std::int64_t step,
       std::int64_t padding, std::int64_t dilated)
      : stride(step),
        spread(step == 1 ? 1 : dilated),
        dilation(step == 1 ? dilated : 1),
        taps(ceil_div(kernel * spread, stride)) {
    // Pixel q of a phase would be number q - reach of the convolution without padding.
    const std::int64_t reach = (taps - 1) * dilation;
    const std::int64_t first = padding / stride, last = (result - 1 + padding) / stride;
    padded = std::max({reach - first, last - (pixels - 1), std::int64_t{0}});
    begin = padding + (padded - reach) * stride;
  }

  std::int64_t stride;
  std::int64_t spread;      // from tap to tap in filters that get zeros in between
  std::int64_t dilation;    // of the convolution
  std::int64_t taps;        // of a phase
  std::int64_t padded = 0;  // of the convolution
  std::int64_t begin = 0;   // of the result among the interleaved pixels
};

class Phases {
 public:
  Phases(const Shape& image, const Shape& weight, const Node& node)
      : groups_(node.attrs.integer("groups")),
        outputs_(weight[1]),
        shape_(node.type.shape),
        h_(axis(image, weight, node, 2)),
        w_(axis(image, weight, node, 3)) {}

  // What the filters depend on besides the weights.
  std::string text() const {
    const auto of = [](const Axis& a) {
      return std::to_string(a.stride) + ", " + std::to_string(a.spread);
    };
    return "phases " + of(h_) + ", " + of(w_) + " in " + std::to_string(groups_);
  }

  // [channels, outputs of a group, kh, kw] to [groups * phases * outputs, channels of a group,
  // taps, taps].
  Tensor filters(const Tensor& weight) const {
    const std::int64_t kh = weight.shape(2), kw = weight.shape(3);
    Tensor w = weight;
    if (h_.spread > 1 || w_.spread > 1) {
      w = w.reshape({w.shape(0), outputs_, kh, 1, kw, 1});
      w = pad(w, {{0, 0}, {0, 0}, {0, 0}, {0, h_.spread - 1}, {0, 0}, {0, w_.spread - 1}});
      w = w.reshape({w.shape(0), outputs_, kh * h_.spread, kw * w_.spread});
    }
    const std::int64_t more_h = h_.taps * h_.stride - w.shape(2),
                       more_w = w_.taps * w_.stride - w.shape(3);
    if (more_h > 0 || more_w > 0) w = pad(w, {{0, 0}, {0, 0}, {0, more_h}, {0, more_w}});
    w = w.reshape(
        {groups_, w.shape(0) / groups_, outputs_, h_.taps, h_.stride, w_.taps, w_.stride});
    w = flip(w, {3, 5}).transpose({0, 4, 6, 2, 1, 3, 5});
    return w.reshape({groups_ * phases() * outputs_, w.shape(4), h_.taps, w_.taps});
  }

  Tensor biases(const Tensor& bias) const {
    return broadcast_to(bias.reshape({groups_, 1, outputs_}), {groups_, phases(), outputs_})
        .reshape({groups_ * phases() * outputs_});
  }

  Tensor run(const Tensor& x, const Tensor& filters, const Tensor& biases) const {
    const Conv2dOptions options{.padding = {h_.padded, w_.padded},
                                .dilation = {h_.dilation, w_.dilation},
                                .groups = groups_};
    Tensor y = conv2d(x, filters, biases, options);
    const std::int64_t height = y.shape(2), width = y.shape(3);
    if (phases() > 1)
      y = y.reshape({shape_[0], groups_, h_.stride, w_.stride, outputs_, height, width})
              .transpose({0, 1, 4, 5, 2, 6, 3})
              .reshape({shape_[0], shape_[1], height * h_.stride, width * w_.stride});
    if (y.shape() == shape_) return y;
    return slice_axes(y, {0, 0, h_.begin, w_.begin}, shape_, {1, 1, 1, 1});
  }

 private:
  static Axis axis(const Shape& image, const Shape& weight, const Node& node, int at) {
    const auto of = [&](std::string_view name, std::int64_t least) {
      const Pair pair = pair_of(node.attrs, name, least, "conv_transpose2d");
      return at == 2 ? pair.h : pair.w;
    };
    return {image[at],       weight[at],       node.type.shape[at],
            of("stride", 1), of("padding", 0), of("dilation", 1)};
  }

  std::int64_t phases() const { return h_.stride * w_.stride; }

  std::int64_t groups_, outputs_;
  Shape shape_;  // of the result
  Axis h_, w_;
};

// The output of a graph of one, whose inputs are these.
ValueId inlined(Rewriter& r, const Graph& body, const std::vector<ValueId>& inputs,
                const std::string& where) {
  std::vector<ValueId> map;
  auto input = inputs.begin();
  for (const Node& node : body.nodes()) {
    std::vector<ValueId> from;
    for (const ValueId id : node.inputs) from.push_back(map[at(id)]);
    switch (node.kind) {
      case NodeKind::input:
        map.push_back(*input++);
        break;
      case NodeKind::constant:
        map.push_back(r.to().add_constant(node.constant, where));
        break;
      case NodeKind::operation:
        map.push_back(r.to().add(node.op, std::move(from), node.attrs, where));
    }
  }
  return map[at(body.outputs()[0])];
}

}  // namespace

Graph transposed_convs(const Graph& graph) {
  const auto& nodes = graph.nodes();
  if (std::ranges::find(nodes, Op::conv_transpose2d, &Node::op) == nodes.end()) return graph;
  return rewrite(graph, [](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (node.op != Op::conv_transpose2d) return std::nullopt;
    const std::vector<ValueId> in = r.inputs(node);
    const Phases phases(r.to().type(in[0]).shape, r.to().type(in[1]).shape, node);
    // Kernels know constants by their nodes, so that these are made at once.
    std::vector<Tensor> made(in.size());
    std::vector<ValueId> inputs;
    std::vector<TensorType> types;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (i > 0 && r.to().is_constant(in[i])) {
        const Tensor from = r.to()[in[i]].constant;
        made[i] = i == 1 ? derived_for_others(r.to(), phases.text(), {from},
                                              [=] { return phases.filters(from).copy(); })
                         : phases.biases(from);
      } else {
        inputs.push_back(in[i]);
        types.push_back(r.to().type(in[i]));
      }
    }
    const Graph body = trace(
        [&](const std::vector<Tensor>& traced) -> std::vector<Tensor> {
          auto next = traced.begin();
          const Tensor x = *next++;
          const Tensor filters = made[1].defined() ? made[1] : phases.filters(*next++);
          if (made.size() < 3) return {phases.run(x, filters, {})};
          return {phases.run(x, filters, made[2].defined() ? made[2] : phases.biases(*next))};
        },
        types);
    return inlined(r, body, inputs, node.where);
  });
}

}  // namespace tensor

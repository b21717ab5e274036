#include "src/trace/passes/early_convs.h"

#include <algorithm>

#include "src/ops/pair.h"
#include "src/trace/derived.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Enlarging many more channels than there were would take longer than the products do.
constexpr std::int64_t kMostWidening = 2;

class Earlier {
 public:
  explicit Earlier(const Graph& graph) : graph_(graph), readers_(consumers(graph)) {
    for (const ValueId id : graph.outputs()) readers_[at(id)].push_back(-1);  // the caller
  }

  std::optional<ValueId> operator()(Rewriter& r, const Node& conv) const {
    if (!mixes_channels(conv)) return std::nullopt;
    const ValueId x = conv.inputs[0];
    if (is_enlarged(x, conv)) return enlarged_late(r, conv, x, 0, true);
    const bool is_of_parts =
        graph_.is_op(x, Op::concatenate) && graph_[x].attrs.integer("axis") == 1 &&
        std::all_of(readers_[at(x)].begin(), readers_[at(x)].end(), [&](ValueId id) {
          return id >= 0 && graph_[id].op == Op::conv2d && mixes_channels(graph_[id]);
        });
    if (!is_of_parts) return std::nullopt;
    return of_parts(r, conv, graph_[x].inputs);
  }

 private:
  bool mixes_channels(const Node& node) const {
    if (node.op != Op::conv2d || node.attrs.integer("groups") != 1) return false;
    if (node.type.dtype != f32 && node.type.dtype != f64) return false;
    const Shape& kernel = graph_.type(node.inputs[1]).shape;
    const Pair padding = pair_of(node.attrs, "padding", 0, "conv2d"),
               stride = pair_of(node.attrs, "stride", 1, "conv2d");
    return kernel[2] == 1 && kernel[3] == 1 && padding.h == 0 && padding.w == 0 && stride.h == 1 &&
           stride.w == 1 && graph_.is_constant(node.inputs[1]);
  }

  bool has_one_reader(ValueId id) const { return readers_[at(id)].size() == 1; }

  // Whether it is an image, made larger for this convolution or what it reads alone.
  bool is_enlarged(ValueId id, const Node& conv) const {
    if (!graph_.is_op(id, Op::interpolate) || !has_one_reader(id)) return false;
    const Shape &from = graph_.type(graph_[id].inputs[0]).shape, &to = graph_.type(id).shape;
    return from[2] <= to[2] && from[3] <= to[3] && from[2] * from[3] < to[2] * to[3] &&
           conv.type.shape[1] <= kMostWidening * from[1];
  }

  // The convolution of some of the channels by their part of the weights.
  ValueId convolved(Rewriter& r, const Node& conv, ValueId x, std::int64_t first,
                    bool with_bias) const {
    const ValueId whole = r(conv.inputs[1]);
    const std::int64_t count = r.to().type(x).shape[1];
    ValueId part = whole;
    if (count != r.to().type(whole).shape[1]) {
      const Tensor weight = r.to()[whole].constant;
      const auto text = "channels " + std::to_string(first) + " and " + std::to_string(count);
      part = r.to().add_constant(
          derived_for_others(
              r.to(), text, {weight},
              [=] { return copy(weight(all_of_axis, slice(first, first + count))); }),
          r.to()[whole].where);
    }
    std::vector<ValueId> inputs = {x, part};
    if (with_bias && conv.inputs.size() > 2) inputs.push_back(r(conv.inputs[2]));
    return r.to().add(Op::conv2d, std::move(inputs), conv.attrs, conv.where);
  }

  // The same of an image before it is enlarged, and then enlarged.
  ValueId enlarged_late(Rewriter& r, const Node& conv, ValueId x, std::int64_t first,
                        bool with_bias) const {
    const Node& enlarge = graph_[x];
    const ValueId mixed = convolved(r, conv, r(enlarge.inputs[0]), first, with_bias);
    return r.to().add(Op::interpolate, {mixed}, enlarge.attrs, enlarge.where);
  }

  // The enlarged ones are added first: then those that are not, within their convolutions' kernels.
  std::optional<ValueId> of_parts(Rewriter& r, const Node& conv,
                                  const std::vector<ValueId>& parts) const {
    const auto is_late = [&](ValueId part) { return is_enlarged(part, conv); };
    if (std::none_of(parts.begin(), parts.end(), is_late)) return std::nullopt;
    ValueId sum = -1;
    std::size_t left = parts.size();
    for (const bool late : {true, false}) {
      std::int64_t first = 0;
      for (const ValueId part : parts) {
        if (is_late(part) == late) {
          const bool is_last = --left == 0;
          const ValueId term = late ? enlarged_late(r, conv, part, first, is_last)
                                    : convolved(r, conv, r(part), first, is_last);
          sum = sum < 0 ? term : r.to().add(Op::add, {term, sum}, {}, conv.where);
        }
        first += graph_.type(part).shape[1];
      }
    }
    return sum;
  }

  const Graph& graph_;
  std::vector<std::vector<ValueId>> readers_;
};

}  // namespace

Graph early_convs(const Graph& graph) {
  const Earlier earlier(graph);
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) { return earlier(r, node); });
}

}  // namespace tensor

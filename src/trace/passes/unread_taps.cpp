#include "src/trace/passes/unread_taps.h"

#include "src/ops/op.h"
#include "src/ops/pair.h"
#include "src/trace/derived.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// How many of an axis' taps go at each end.
std::int64_t unread(std::int64_t image, std::int64_t results, std::int64_t taps, std::int64_t step,
                    std::int64_t padding, std::int64_t dilation) {
  std::int64_t count = 0;
  const auto is_unread = [&](std::int64_t end) {
    const std::int64_t first = end * dilation - padding + (results - 1) * step;
    const std::int64_t last = (taps - 1 - end) * dilation - padding;
    return first < 0 && last >= image && padding >= (end + 1) * dilation;
  };
  while (taps - 2 * count > 2 && is_unread(count)) ++count;
  return count;
}

}  // namespace

std::optional<ValueId> unread_taps(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::conv2d) return std::nullopt;
  auto in = r.inputs(node);
  if (!r.to().is_constant(in[1])) return std::nullopt;
  const Shape image = r.to().type(in[0]).shape, filters = r.to().type(in[1]).shape;
  const auto of = [&](const char* name, std::int64_t least) {
    return pair_of(node.attrs, name, least, "conv2d");
  };
  const Pair step = of("stride", 1), dilation = of("dilation", 1);
  Pair padding = of("padding", 0);
  const std::int64_t h =
      unread(image[2], node.type.shape[2], filters[2], step.h, padding.h, dilation.h);
  const std::int64_t w =
      unread(image[3], node.type.shape[3], filters[3], step.w, padding.w, dilation.w);
  if (h == 0 && w == 0) return std::nullopt;
  padding.h -= h * dilation.h, padding.w -= w * dilation.w;
  const Dims extent{filters[0], filters[1], filters[2] - 2 * h, filters[3] - 2 * w};
  const Attrs part = {{"start", Dims{0, 0, h, w}}, {"extent", extent}, {"step", Dims{1, 1, 1, 1}}};
  const Node old = r.to()[in[1]];
  TextWriter what;
  what << "copied slice " << part;
  const Tensor kept = derived_for_others(
      r.to(), what.str(), {old.constant},
      [whole = old.constant, part] { return copy(apply_op(Op::slice, {whole}, part)); });
  in[1] = r.to().add_constant(kept, old.where);
  Attrs attrs = node.attrs;
  attrs.set("padding", pair_value(padding));
  return r.to().add(Op::conv2d, in, attrs, node.where);
}

}  // namespace tensor

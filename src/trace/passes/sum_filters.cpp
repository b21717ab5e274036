#include "src/trace/passes/sum_filters.h"

#include "src/ops/pair.h"
#include "src/trace/derived.h"
#include "src/trace/passes/fold_scale.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"
#include "tensor/text.h"

namespace tensor {
namespace {

// What a branch makes of an image: filters [outputs, channels / groups, height, width], with as
// many zeros around the image, and a number an output beside, or an undefined tensor.
struct Branch {
  ValueId image = -1;
  Tensor filters, shift;
  Pair padding = 0;
};

Pair pair_in(const Node& conv, std::string_view name) {
  return pair_of(conv.attrs, name, 0, "conv2d");
}

bool is_one(const Pair& pair) { return pair.h == 1 && pair.w == 1; }
bool is_same(const Pair& a, const Pair& b) { return a.h == b.h && a.w == b.w; }

class Summer {
 public:
  Summer(Rewriter& r, bool is_wide) : r_(r), is_wide_(is_wide) {}

  /// The convolution `into` plus `other`, if filters of that are a part of its own.
  std::optional<ValueId> summed(ValueId into, ValueId other, bool is_other_shared) {
    const auto wide = convolved(into);
    if (!wide) return std::nullopt;
    const Node conv = to()[into];
    auto narrow = is_other_shared ? std::nullopt : convolved(other);
    if (narrow ? !is_alike(conv, to()[other]) : !is_wide_ || !keeps_places(conv))
      return std::nullopt;
    if (!narrow) narrow = scaled(other, conv);
    if (!narrow || narrow->image != wide->image) return std::nullopt;
    const auto first = place_in(conv, *wide, *narrow);
    if (!first) return std::nullopt;
    std::vector<ValueId> inputs = {
        wide->image, to().add_constant(filters(*wide, *narrow, *first), where_of(conv))};
    if (wide->shift.defined() || narrow->shift.defined())
      inputs.push_back(to().add_constant(shift(*wide, *narrow), conv.where));
    return to().add(Op::conv2d, std::move(inputs), conv.attrs, conv.where);
  }

 private:
  Graph& to() { return r_.to(); }
  const std::string& where_of(const Node& conv) { return to()[conv.inputs[1]].where; }

  std::optional<Branch> convolved(ValueId id) {
    if (!to().is_op(id, Op::conv2d)) return std::nullopt;
    const Node& conv = to()[id];
    if (conv.type.dtype != f32 && conv.type.dtype != f64) return std::nullopt;
    for (std::size_t i = 1; i < conv.inputs.size(); ++i)
      if (!to().is_constant(conv.inputs[i])) return std::nullopt;
    Branch branch{conv.inputs[0], to()[conv.inputs[1]].constant, {}, pair_in(conv, "padding")};
    if (conv.inputs.size() > 2) branch.shift = to()[conv.inputs[2]].constant;
    return branch;
  }

  // Whether they take the same steps over the image, in as many groups.
  bool is_alike(const Node& a, const Node& b) {
    const Shape& filters = to().type(b.inputs[1]).shape;
    const bool is_pixel = filters[2] == 1 && filters[3] == 1;
    return is_same(pair_in(a, "stride"), pair_in(b, "stride")) &&
           (is_pixel || is_same(pair_in(a, "dilation"), pair_in(b, "dilation"))) &&
           a.attrs.integer("groups") == b.attrs.integer("groups");
  }

  // Whether a result's channel and pixel may be the image's.
  bool keeps_places(const Node& conv) {
    return is_one(pair_in(conv, "stride")) && to().type(conv.inputs[0]) == conv.type;
  }

  // x, x * s or x * s + t as a convolution.
  std::optional<Branch> scaled(ValueId id, const Node& conv) {
    const ValueId image = conv.inputs[0];
    const std::int64_t channels = conv.type.shape[1];
    Branch branch{image, {}, {}, 0};
    Tensor scale = ones({channels}, conv.type.dtype);
    for (const Op op : {Op::add, Op::multiply}) {
      if (id == image || !to().is_op(id, op)) continue;
      const auto& inputs = to()[id].inputs;
      const std::size_t side = to().is_constant(inputs[0]) ? 0 : 1;
      if (!to().is_constant(inputs[side]) || to().type(inputs[side]).dtype != conv.type.dtype)
        return std::nullopt;
      const auto numbers = along_axis(to()[inputs[side]].constant, conv.type.shape, 1);
      if (!numbers) return std::nullopt;
      (op == Op::add ? branch.shift : scale) = *numbers;
      id = inputs[1 - side];
    }
    if (id != image) return std::nullopt;
    const std::int64_t in_group = channels / conv.attrs.integer("groups");
    branch.filters = where(arange(channels).reshape({channels, 1, 1, 1}) % in_group ==
                               arange(in_group).reshape({1, in_group, 1, 1}),
                           scale.reshape({channels, 1, 1, 1}), zeros({}, conv.type.dtype));
    return branch;
  }

  // Where the narrow filters begin among the wide ones.
  static std::optional<Pair> place_in(const Node& conv, const Branch& wide, const Branch& narrow) {
    const Pair dilation = pair_in(conv, "dilation");
    const auto along = [](std::int64_t distance, std::int64_t step, std::int64_t taps,
                          std::int64_t of_taps) -> std::optional<std::int64_t> {
      const std::int64_t first = distance / step;
      if (distance < 0 || distance % step != 0 || first + taps > of_taps) return std::nullopt;
      return first;
    };
    const Tensor &all = wide.filters, &some = narrow.filters;
    const auto h =
        along(wide.padding.h - narrow.padding.h, dilation.h, some.shape(2), all.shape(2));
    const auto w =
        along(wide.padding.w - narrow.padding.w, dilation.w, some.shape(3), all.shape(3));
    return h && w ? std::optional(Pair(*h, *w)) : std::nullopt;
  }

  Tensor filters(const Branch& wide, const Branch& narrow, const Pair& first) {
    const Tensor &all = wide.filters, &some = narrow.filters;
    const std::pair<std::int64_t, std::int64_t> none{0, 0},
        rows{first.h, all.shape(2) - some.shape(2) - first.h},
        columns{first.w, all.shape(3) - some.shape(3) - first.w};
    TextWriter what;
    what << "filters plus others at " << first.h << ", " << first.w;
    return derived_for_others(to(), what.str(), {all, some}, [all, some, none, rows, columns] {
      return all + pad(some, {none, none, rows, columns});
    });
  }

  static Tensor shift(const Branch& a, const Branch& b) {
    if (!a.shift.defined()) return b.shift;
    return b.shift.defined() ? a.shift + b.shift : a.shift;
  }

  Rewriter& r_;
  bool is_wide_;
};

}  // namespace

std::optional<ValueId> sum_filters(Rewriter& r, const Node& node,
                                   const std::vector<std::vector<ValueId>>& readers, bool is_wide) {
  if (node.op != Op::add) return std::nullopt;
  const auto in = r.inputs(node);
  const auto is_shared = [&](std::size_t side) {
    return readers[at(node.inputs[side])].size() != 1;
  };
  for (const std::size_t side : {0, 1}) {
    const ValueId other = in[1 - side];
    if (is_shared(side) || !(r.to().type(in[side]) == node.type) ||
        !(r.to().type(other) == node.type))
      continue;
    if (const auto sum = Summer(r, is_wide).summed(in[side], other, is_shared(1 - side)))
      return sum;
  }
  return std::nullopt;
}

}  // namespace tensor

#include "src/trace/passes/fold_scale.h"

#include <algorithm>
#include <cmath>

#include "src/core/median.h"
#include "src/core/rounding.h"
#include "src/ops/op.h"
#include "src/trace/derived.h"
#include "src/trace/passes/sum_filters.h"
#include "src/trace/rewrite.h"
#include "tensor/creation.h"
#include "tensor/io.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Whether two constants are combined in a type that has digits and range to spare.
bool is_wide(const Tensor& a, const Tensor& b) {
  const DType dtype = promote(a.dtype(), b.dtype());
  return dtype == f32 || dtype == f64;
}

// The median of the magnitudes, of some elements of large ones.
double typical_magnitude(const Tensor& x) {
  constexpr std::int64_t kMost = 16;  // along an axis, but for rests
  Dims start, extent, step;
  for (const auto size : x.shape()) {
    start.push_back(0), step.push_back(std::max<std::int64_t>(size / kMost, 1));
    extent.push_back(ceil_div(size, step.back()));
  }
  const Tensor some =
      apply_op(Op::slice, {x}, {{"start", start}, {"extent", extent}, {"step", step}});
  std::vector<double> sizes = some.to_vector<double>();
  for (double& size : sizes) {
    if (std::isnan(size)) return size;
    size = std::abs(size);
  }
  return median(std::move(sizes));
}

// Half of the weights of a layer should stay above the least normal number of f16, below which
// digits are lost. Factors that take few bits away are no reason to look at weights.
bool keeps_digits(const Tensor& weights, const Tensor& factor, DType stored) {
  if (stored != f16 || weights.size() == 0 || factor.size() == 0) return true;
  const double scale = typical_magnitude(factor);
  return scale == 0 || scale >= 0x1p-6 || scale * typical_magnitude(weights) >= 0x1p-14;
}

// Whether a constant that will be stored in such a type may be multiplied by the factor in the
// place of a product that it makes: it could become infinite, or lose its digits, where that does
// not.
bool can_scale(const Tensor& constant, const Tensor& factor, DType stored) {
  if (!is_wide(constant, factor) || !keeps_digits(constant, factor, stored)) return false;
  constexpr double kMost = 0x1p64;
  double largest = 0;
  for (const double x : factor.to_vector<double>()) {
    if (!std::isfinite(x)) return false;
    largest = std::max(largest, std::abs(x));
  }
  return largest == 0 || (largest < kMost && largest > 1 / kMost);
}

struct Operand {
  ValueId product;  // the convolution or matmul, in the new graph
  Tensor vector;
};

// The node as product op constant-vector, when the product has no other reader.
std::optional<Operand> match(Rewriter& r, const Node& node,
                             const std::vector<std::vector<ValueId>>& readers, Op product,
                             int axis) {
  const auto in = r.inputs(node);
  for (const int side : {0, 1}) {
    const ValueId x = in[static_cast<std::size_t>(side)],
                  c = in[static_cast<std::size_t>(1 - side)];
    const ValueId old = node.inputs[static_cast<std::size_t>(side)];
    if (!r.to().is_op(x, product) || !r.to().is_constant(c) || readers[at(old)].size() != 1)
      continue;
    if (!(r.to().type(x) == node.type)) continue;
    const int at = axis < 0 ? node.type.shape.rank() + axis : axis;
    if (auto vector = along_axis(r.to()[c].constant, node.type.shape, at))
      return Operand{x, *vector};
  }
  return std::nullopt;
}

ValueId rebuilt(Rewriter& r, ValueId product, const Tensor& weight,
                const std::optional<Tensor>& bias) {
  const Node old = r.to()[product];
  std::vector<ValueId> inputs = {old.inputs[0],
                                 r.to().add_constant(weight, r.to()[old.inputs[1]].where)};
  if (bias) inputs.push_back(r.to().add_constant(*bias, old.where));
  return r.to().add(old.op, std::move(inputs), old.attrs, old.where);
}

std::optional<ValueId> fold_into_conv(Rewriter& r, const Node& node,
                                      const std::vector<std::vector<ValueId>>& readers,
                                      DType stored) {
  const auto found = match(r, node, readers, Op::conv2d, 1);
  if (!found) return std::nullopt;
  const Node conv = r.to()[found->product];
  if (!r.to().is_constant(conv.inputs[1]) ||
      (conv.inputs.size() > 2 && !r.to().is_constant(conv.inputs[2])))
    return std::nullopt;
  const Tensor weight = r.to()[conv.inputs[1]].constant;
  std::optional<Tensor> bias;
  if (conv.inputs.size() > 2) bias = r.to()[conv.inputs[2]].constant;
  if (node.op == Op::add) {
    if (bias && !is_wide(*bias, found->vector)) return std::nullopt;
    return rebuilt(r, found->product, weight, bias ? *bias + found->vector : found->vector);
  }
  if (!can_scale(weight, found->vector, stored)) return std::nullopt;
  if (bias) bias = *bias * found->vector;
  const Tensor scaled_weight = derived_for_others(r.to(), "filters scaled", {weight, found->vector},
                                                  [weight, scale = found->vector] {
                                                    return weight * reshape(scale, {-1, 1, 1, 1});
                                                  });
  return rebuilt(r, found->product, scaled_weight, bias);
}

std::optional<ValueId> fold_into_matmul(Rewriter& r, const Node& node,
                                        const std::vector<std::vector<ValueId>>& readers,
                                        DType stored) {
  const auto found = match(r, node, readers, Op::matmul, -1);
  if (!found || node.op != Op::multiply) return std::nullopt;
  const ValueId id = r.to()[found->product].inputs[1];
  if (!r.to().is_constant(id) || !can_scale(r.to()[id].constant, found->vector, stored))
    return std::nullopt;
  const Tensor weight = r.to()[id].constant;
  const Tensor scaled_weight =
      derived_for_others(r.to(), "columns scaled", {weight, found->vector},
                         [weight, scale = found->vector] { return weight * scale; });
  return rebuilt(r, found->product, scaled_weight, std::nullopt);
}

// A constant times a number, its axes lying in memory as they were.
Tensor scaled(const Tensor& constant, const Tensor& number) {
  const int rank = constant.rank();
  const bool is_transposed =
      rank == 2 && constant.strides()[0] < constant.strides()[1] && constant.shape(0) > 1;
  Tensor result = is_transposed ? transpose(transpose(constant) * number) : constant * number;
  forget_pages(constant);
  return result;
}

// What a product with constant weights, its bias if it has one, and views after it are to a factor:
// attention's scale reaches the weights of its queries so.
class Factor {
 public:
  Factor(Rewriter& r, const std::vector<std::vector<ValueId>>& readers, DType stored)
      : r_(r), readers_(readers), stored_(stored) {}

  /// `id` times `number`, if the number can be multiplied into constants. Nobody else may read it.
  std::optional<ValueId> times(ValueId id, const Tensor& number) {
    const Node& node = r_.from()[id];
    if (node.kind != NodeKind::operation || readers_[at(id)].size() != 1) return std::nullopt;
    if (info(node.op).pattern == Pattern::view) {
      const auto inner = times(node.inputs[0], number);
      if (!inner) return std::nullopt;
      return r_.to().add(node.op, {*inner}, node.attrs, node.where);
    }
    if (node.op == Op::matmul) return with_constant(node, 1, r_(node.inputs[0]), number);
    if (node.op != Op::add) return std::nullopt;
    for (const std::size_t side : {0, 1})
      if (r_.to().is_constant(r_(node.inputs[1 - side])) &&
          r_.from().type(node.inputs[side]) == node.type)
        if (const auto product = times(node.inputs[side], number))
          return with_constant(node, 1 - side, *product, number);
    return std::nullopt;
  }

 private:
  // The node of `other` and its constant input, times the number.
  std::optional<ValueId> with_constant(const Node& node, std::size_t constant, ValueId other,
                                       const Tensor& number) {
    const ValueId old = r_(node.inputs[constant]);
    if (!r_.to().is_constant(old)) return std::nullopt;
    const Node before = r_.to()[old];
    const DType stored = node.op == Op::add ? f32 : stored_;  // a bias stays wide
    if (!can_scale(before.constant, number, stored)) return std::nullopt;
    const Tensor value =
        derived_for_others(r_.to(), "scaled", {before.constant, number},
                           [old = before.constant, number] { return scaled(old, number); });
    const ValueId now = r_.to().add_constant(value, before.where);
    const bool is_second = constant == 1;
    return r_.to().add(node.op, {is_second ? other : now, is_second ? now : other}, node.attrs,
                       node.where);
  }

  Rewriter& r_;
  const std::vector<std::vector<ValueId>>& readers_;
  DType stored_;  // of weights
};

std::optional<ValueId> fold_number(Rewriter& r, const Node& node,
                                   const std::vector<std::vector<ValueId>>& readers, DType stored) {
  if (node.op != Op::multiply) return std::nullopt;
  for (const std::size_t side : {0, 1}) {
    const ValueId number = r(node.inputs[1 - side]), product = node.inputs[side];
    if (!r.to().is_constant(number) || r.to()[number].constant.size() != 1 ||
        !(r.from().type(product) == node.type))
      continue;
    const Tensor factor = reshape(r.to()[number].constant, {});
    if (const auto folded = Factor(r, readers, stored).times(product, factor)) return folded;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Tensor> along_axis(const Tensor& constant, const Shape& shape, int axis) {
  const int lead = shape.rank() - constant.rank();
  if (lead < 0) return std::nullopt;
  for (int i = 0; i < constant.rank(); ++i)
    if (i + lead != axis && constant.shape(i) != 1) return std::nullopt;
  return copy(broadcast_to(reshape(constant, {-1}), {shape[axis]}));
}

Graph fold_scale(const Graph& graph, DType stored, FilterSums sums) {
  auto readers = consumers(graph);
  for (const ValueId id : graph.outputs())
    readers[at(id)].insert(readers[at(id)].end(), 2,
                           -1);  // the caller reads it too
  return rewrite(graph, [&](Rewriter& r, ValueId, const Node& node) -> std::optional<ValueId> {
    if (node.op != Op::multiply && node.op != Op::add) return std::nullopt;
    if (const auto value = fold_into_conv(r, node, readers, stored)) return value;
    if (const auto value = fold_into_matmul(r, node, readers, stored)) return value;
    const bool with_images = sums == FilterSums::of_images;
    if (sums != FilterSums::none)
      if (const auto value = sum_filters(r, node, readers, with_images)) return value;
    return fold_number(r, node, readers, stored);
  });
}

}  // namespace tensor

#include "src/trace/passes/simplify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/core/dispatch.h"
#include "src/core/view.h"
#include "src/trace/passes/activations.h"
#include "src/trace/passes/shared_factors.h"
#include "src/trace/passes/short_folds.h"
#include "src/trace/passes/turned_weights.h"
#include "src/trace/passes/unread_taps.h"
#include "src/trace/passes/view_chains.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using Result = std::optional<ValueId>;

// Zeros have signs: 1 / 0 is not 1 / -0.
bool is_same(double a, double b) { return a == b && std::signbit(a) == std::signbit(b); }

// Whether the first element has the bits of the last: of weights, few get so far.
bool has_equal_ends(const Tensor& x) {
  const ConstView view = const_view(x);
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis)
    last += (view.shape[axis] - 1) * view.strides[axis];
  const auto bytes = static_cast<std::ptrdiff_t>(item_size(view.dtype));
  return std::equal(view.data, view.data + bytes, view.data + last * bytes);
}

// The value of a constant whose elements are all the same number.
std::optional<double> uniform(const Graph& graph, ValueId id) {
  if (!graph.is_constant(id)) return std::nullopt;
  const Tensor& value = graph[id].constant;
  if (value.size() == 0 || value.size() > 4096 || !has_equal_ends(value)) return std::nullopt;
  const std::vector<double> all = value.to_vector<double>();
  if (!std::all_of(all.begin(), all.end(), [&](double v) { return is_same(v, all.front()); }))
    return std::nullopt;
  return all.front();
}

// `x` where it already has the node's type: an identity may still broadcast or promote.
Result same_type(Rewriter& r, ValueId x, const Node& node) {
  return r.to().type(x) == node.type ? Result(x) : std::nullopt;
}

// x op c and, for a commutative op, c op x.
Result drop_neutral(Rewriter& r, const Node& node, Op op, double neutral, bool commutes) {
  if (node.op != op) return std::nullopt;
  const auto in = r.inputs(node);
  const auto is_neutral = [&](ValueId id) {
    const std::optional<double> value = uniform(r.to(), id);
    return value && (is_floating(node.type.dtype) ? is_same(*value, neutral) : *value == neutral);
  };
  if (is_neutral(in[1])) return same_type(r, in[0], node);
  if (commutes && is_neutral(in[0])) return same_type(r, in[1], node);
  return std::nullopt;
}

// -0 + 0 is 0.
Result add_zero(Rewriter& r, ValueId, const Node& node) {
  return drop_neutral(r, node, Op::add, -0.0, true);
}
Result subtract_zero(Rewriter& r, ValueId, const Node& node) {
  return drop_neutral(r, node, Op::subtract, 0, false);
}
Result multiply_one(Rewriter& r, ValueId, const Node& node) {
  return drop_neutral(r, node, Op::multiply, 1, true);
}
Result divide_one(Rewriter& r, ValueId, const Node& node) {
  return drop_neutral(r, node, Op::divide, 1, false);
}
Result power_one(Rewriter& r, ValueId, const Node& node) {
  return drop_neutral(r, node, Op::power, 1, false);
}

// Whether the type holds 1 / divisor with all its digits. A 16-bit type has so few of them that
// only powers of two will do.
bool has_reciprocal(double divisor, DType dtype) {
  const bool is_short = dtype == f16 || dtype == bf16;
  const double least = dtype == f16   ? 0x1p-14
                       : dtype == f64 ? std::numeric_limits<double>::min()
                                      : std::numeric_limits<float>::min();
  const double reciprocal = full({}, 1 / divisor, dtype).item<double>();
  return std::isfinite(reciprocal) && std::abs(reciprocal) >= least &&
         (!is_short || reciprocal * divisor == 1);
}

// x / c is x * (1 / c): one rounding more, a division less. Exact when c is a power of two.
Result divide_constant(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::divide) return std::nullopt;
  const auto in = r.inputs(node);
  const auto divisor = uniform(r.to(), in[1]);
  if (!divisor) return std::nullopt;
  const Tensor& old = r.to()[in[1]].constant;
  if (!has_reciprocal(*divisor, old.dtype())) return std::nullopt;
  const ValueId factor =
      r.to().add_constant(full(old.shape(), 1 / *divisor, old.dtype()), r.to()[in[1]].where);
  return r.to().add(Op::multiply, {in[0], factor}, {}, node.where);
}

Result copy_of(Rewriter& r, ValueId, const Node& node) {
  return node.op == Op::copy ? Result(r.inputs(node)[0]) : std::nullopt;
}

// A cast to the type it has, and a cast back from a wider type: astype(astype(x: bf16, f32), bf16).
Result cast_back(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::astype) return std::nullopt;
  const ValueId in = r.inputs(node)[0];
  if (const Result same = same_type(r, in, node)) return same;
  if (!r.to().is_op(in, Op::astype)) return std::nullopt;
  const ValueId source = r.to()[in].inputs[0];
  const DType narrow = r.to().type(source).dtype, wide = r.to().type(in).dtype;
  const bool is_exact = promote(narrow, wide) == wide && !(narrow == i64 && wide == f64);
  return narrow == node.type.dtype && is_exact ? Result(source) : std::nullopt;
}

// Views that change nothing.
Result identity_view(Rewriter& r, ValueId, const Node& node) {
  const auto in = r.inputs(node);
  if (node.op == Op::reshape || node.op == Op::broadcast_to) return same_type(r, in[0], node);
  if (node.op == Op::transpose) {
    const Dims axes = node.attrs.dims("axes");
    for (int axis = 0; axis < axes.rank(); ++axis)
      if (axes[axis] != axis && axes[axis] != axis - axes.rank()) return std::nullopt;
    return in[0];
  }
  if (node.op == Op::slice) {
    const Dims step = node.attrs.dims("step");
    for (int axis = 0; axis < step.rank(); ++axis)
      if (step[axis] != 1 && node.type.shape[axis] > 1) return std::nullopt;
    return same_type(r, in[0], node);
  }
  return std::nullopt;
}

Result reshape_of_reshape(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::reshape) return std::nullopt;
  const ValueId in = r.inputs(node)[0];
  if (!r.to().is_op(in, Op::reshape)) return std::nullopt;
  return r.to().add(Op::reshape, {r.to()[in].inputs[0]}, {{"shape", node.type.shape}}, node.where);
}

Result transpose_of_transpose(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::transpose) return std::nullopt;
  const ValueId in = r.inputs(node)[0];
  if (!r.to().is_op(in, Op::transpose)) return std::nullopt;
  const Dims inner = r.to()[in].attrs.dims("axes"), outer = node.attrs.dims("axes");
  Dims axes;
  for (const auto axis : outer)
    axes.push_back(inner[normalize_axis(axis, inner.rank(), "transpose")]);
  const ValueId source = r.to()[in].inputs[0];
  bool identity = true;
  for (int axis = 0; axis < axes.rank(); ++axis) {
    axes[axis] = normalize_axis(axes[axis], axes.rank(), "transpose");
    identity = identity && axes[axis] == axis;
  }
  return identity ? source : r.to().add(Op::transpose, {source}, {{"axes", axes}}, node.where);
}

// Parts without elements go, and so many parts that a kernel would not take them are joined first.
Result concatenate_parts(Rewriter& r, ValueId, const Node& node) {
  constexpr std::size_t kMost = 64;
  if (node.op != Op::concatenate) return std::nullopt;
  std::vector<ValueId> parts = r.inputs(node);
  const std::size_t before = parts.size();
  std::erase_if(parts, [&](ValueId id) { return num_elements(r.to().type(id).shape) == 0; });
  if (parts.empty() || (parts.size() == before && before <= kMost)) return std::nullopt;
  while (parts.size() > kMost) {
    std::vector<ValueId> joined;
    for (auto first = parts.begin(); first != parts.end();) {
      const auto end = first + std::min<std::ptrdiff_t>(kMost, parts.end() - first);
      joined.push_back(r.to().add(Op::concatenate, {first, end}, node.attrs, node.where));
      first = end;
    }
    parts = std::move(joined);
  }
  const ValueId whole = parts.size() == 1
                            ? parts.front()
                            : r.to().add(Op::concatenate, parts, node.attrs, node.where);
  return same_type(r, whole, node);
}

// where(c, x, x), and a condition that is known.
Result known_choice(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::where) return std::nullopt;
  const auto in = r.inputs(node);
  if (in[1] == in[2]) return same_type(r, in[1], node);
  const std::optional<double> condition = uniform(r.to(), in[0]);
  return condition ? same_type(r, *condition != 0 ? in[1] : in[2], node) : std::nullopt;
}

constexpr Rule kRules[] = {
    {"known_choice", known_choice},
    {"concatenate_parts", concatenate_parts},
    {"add_zero", add_zero},
    {"subtract_zero", subtract_zero},
    {"multiply_one", multiply_one},
    {"divide_one", divide_one},
    {"power_one", power_one},
    {"divide_constant", divide_constant},
    {"short_fold", short_fold},
    {"shared_factor", shared_factor},
    {"turned_weights", turned_weights},
    {"unread_taps", unread_taps},
    {"composed_silu", composed_silu},
    {"composed_gelu", composed_gelu},
    {"copy", copy_of},
    {"cast_back", cast_back},
    {"identity_view", identity_view},
    {"reshape_of_reshape", reshape_of_reshape},
    {"transpose_of_transpose", transpose_of_transpose},
    {"view_chain", view_chain},
};

}  // namespace

std::span<const Rule> simplify_rules() { return kRules; }

Graph simplify(const Graph& graph) {
  return rewrite(graph, [](Rewriter& r, ValueId id, const Node& node) -> Result {
    for (const Rule& rule : kRules)
      if (const Result value = rule.apply(r, id, node)) return value;
    return std::nullopt;
  });
}

}  // namespace tensor

// Reductions. Most of them fold the elements of the reduced axes into one accumulator an output
// element: a strided loop over the input in which the accumulators do not move (stride 0) along the
// reduced axes.
#include <algorithm>
#include <cstdlib>
#include <limits>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/op.h"
#include "src/ops/pack.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// ---- Type rules. Attributes: axis (sorted, not negative) and keepdims; of var, ddof.

Shape reduced_shape(const Shape& shape, const Attrs& attrs) {
  const Dims axes = attrs.dims("axis");
  const bool keepdims = attrs.flag("keepdims");
  for (int i = 0; i < axes.rank(); ++i)
    if (axes[i] < (i > 0 ? axes[i - 1] + 1 : 0) || axes[i] >= shape.rank())
      fail("reduction", "got the axes ", axes, " for the shape ", shape,
           ", need them from 0 on, in rising order");
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!axes.contains(axis))
      result.push_back(shape[axis]);
    else if (keepdims)
      result.push_back(1);
  }
  return result;
}

// How many elements are folded into one.
std::int64_t reduced_count(const Shape& shape, const Attrs& attrs) {
  std::int64_t count = 1;
  for (const auto axis : attrs.dims("axis")) count *= shape[static_cast<int>(axis)];
  return count;
}

TensorType infer_sum(std::span<const TensorType> in, const Attrs& attrs) {
  return {reduced_shape(in[0].shape, attrs), is_floating(in[0].dtype) ? in[0].dtype : i64};
}
TensorType infer_mean(std::span<const TensorType> in, const Attrs& attrs) {
  return {reduced_shape(in[0].shape, attrs), is_floating(in[0].dtype) ? in[0].dtype : f64};
}
TensorType infer_var(std::span<const TensorType> in, const Attrs& attrs) {
  attrs.number("ddof");
  return infer_mean(in, attrs);
}
TensorType infer_flag(std::span<const TensorType> in, const Attrs& attrs) {
  return {reduced_shape(in[0].shape, attrs), boolean};
}

template <Op op>
TensorType infer_extreme(std::span<const TensorType> in, const Attrs& attrs) {
  const Shape shape = reduced_shape(in[0].shape, attrs);
  if (reduced_count(in[0].shape, attrs) == 0 && num_elements(shape) > 0)
    fail(info(op).name, "the shape ", in[0].shape, " has no elements along the axes ",
         attrs.dims("axis"), ": there is nothing to choose from");
  const bool index = op == Op::argmax || op == Op::argmin;
  return {shape, index ? i64 : in[0].dtype};
}

// ---- Folding.

// Strides along the input's axes of something that has the result's shape; 0 on the reduced axes.
Strides strides_in_input(const Shape& shape, const Attrs& attrs, const Strides& result) {
  const Dims axes = attrs.dims("axis");
  const bool keepdims = attrs.flag("keepdims");
  Strides strides;
  int place = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool reduced = axes.contains(axis);
    strides.push_back(reduced ? 0 : result[place]);
    if (!reduced || keepdims) ++place;
  }
  return strides;
}

// Runs `loop` over x with `totals` (contiguous, of the result's shape) as its output and `others`,
// of the same layout, as its further inputs.
void fold(const ConstView& x, const Attrs& attrs, const Tensor& totals, InnerLoop loop,
          const Tensor& others = {}) {
  const Dims order = memory_order(x.strides);
  const Strides strides = strides_in_input(x.shape, attrs, totals.strides());
  const View out{mutable_view(totals).data, totals.dtype(), x.shape, strides};
  std::vector<ConstView> in{permuted(x, order)};
  if (others.defined())
    in.push_back(
        permuted(ConstView{const_view(others).data, others.dtype(), x.shape, strides}, order));
  run_strided(permuted(out, order), in, loop);
}

template <class T, class A>
A element_at(const std::byte* data) {
  return static_cast<A>(static_cast<Compute<T>>(*reinterpret_cast<const T*>(data)));
}

// f(accumulator, element) on every element; accumulators are int64 or double.
template <class T, auto f>
void fold_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  using A = Accumulator<T>;
  const auto element = [&](std::int64_t i) { return element_at<T, A>(data[1] + i * strides[1]); };
  if (strides[0] == 0) {
    A total = *reinterpret_cast<A*>(data[0]);
    for (std::int64_t i = 0; i < count; ++i) total = f(total, element(i));
    *reinterpret_cast<A*>(data[0]) = total;
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      A& total = *reinterpret_cast<A*>(data[0] + i * strides[0]);
      total = f(total, element(i));
    }
  }
}

// The sum of term(begin) ... term(begin + count - 1). Halving keeps the rounding error at log n
// instead of n (Higham, The accuracy of floating point summation, 1993); eight partial sums keep
// the pipeline full.
template <class A, class Term>
A pairwise_sum(const Term& term, std::int64_t begin, std::int64_t count) {
  if (count > 256) {
    const std::int64_t half = count / 16 * 8;
    return pairwise_sum<A>(term, begin, half) + pairwise_sum<A>(term, begin + half, count - half);
  }
  A partial[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) partial[lane] += term(begin + i + lane);
  for (; i < count; ++i) partial[0] += term(begin + i);
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])) +
         ((partial[4] + partial[5]) + (partial[6] + partial[7]));
}

template <class A, class Term>
void add_terms(std::byte* out, std::int64_t stride, std::int64_t count, const Term& term) {
  if (stride == 0) {
    *reinterpret_cast<A*>(out) += pairwise_sum<A>(term, 0, count);
  } else {
    for (std::int64_t i = 0; i < count; ++i) *reinterpret_cast<A*>(out + i * stride) += term(i);
  }
}

// A is uint64 to wrap around where int64 would overflow.
template <class T, class A>
void sum_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  add_terms<A>(data[0], strides[0], count,
               [&](std::int64_t i) { return element_at<T, A>(data[1] + i * strides[1]); });
}

// data[2]: the means
template <class T>
void squared_deviation_loop(std::byte* const* data, const std::int64_t* strides,
                            std::int64_t count) {
  add_terms<double>(data[0], strides[0], count, [&](std::int64_t i) {
    const double deviation = element_at<T, double>(data[1] + i * strides[1]) -
                             *reinterpret_cast<const double*>(data[2] + i * strides[2]);
    return deviation * deviation;
  });
}

// ---- Kernels.

Tensor accumulators(const View& out, const Tensor& initial) {
  return full(out.shape, initial, initial.dtype());
}

void eval_sum(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const Tensor totals = accumulators(out, is_floating(in[0].dtype) ? Tensor(0.0) : Tensor(0));
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    using A = std::conditional_t<std::is_integral_v<T>, std::uint64_t, double>;
    fold(in[0], attrs, totals, sum_loop<T, A>);
  });
  convert_elements(const_view(totals), out);
}

// Sums of doubles divided by `count`; 0 / 0 is NaN.
Tensor mean_of(const ConstView& x, const Attrs& attrs, const View& out) {
  Tensor means = accumulators(out, 0.0);
  dispatch(x.dtype,
           [&]<class Tag>(Tag) { fold(x, attrs, means, sum_loop<typename Tag::type, double>); });
  const auto count = static_cast<double>(reduced_count(x.shape, attrs));
  for (double& mean : means.mutable_span<double>()) mean /= count;
  return means;
}

void eval_mean(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  convert_elements(const_view(mean_of(in[0], attrs, out)), out);
}

// In two passes: sums of squares less squares of sums would cancel.
void eval_var(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const Tensor means = mean_of(in[0], attrs, out);
  Tensor totals = accumulators(out, 0.0);
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    fold(in[0], attrs, totals, squared_deviation_loop<typename Tag::type>, means);
  });
  const double left = static_cast<double>(reduced_count(in[0].shape, attrs)) - attrs.number("ddof");
  for (double& total : totals.mutable_span<double>()) total /= std::max(left, 0.0);
  convert_elements(const_view(totals), out);
}

// Folds from the neutral element on.
template <auto f>
void eval_fold(const ConstView& x, const Attrs& attrs, const View& out, double floating,
               std::int64_t whole) {
  const Tensor totals = accumulators(out, is_floating(x.dtype) ? Tensor(floating) : Tensor(whole));
  dispatch(x.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    fold(x, attrs, totals, fold_loop<T, f>);
  });
  convert_elements(const_view(totals), out);
}

constexpr auto kTimes = [](auto a, auto b) {
  if constexpr (std::is_floating_point_v<decltype(a)>)
    return a * b;
  else
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
};
void eval_prod(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  eval_fold<kTimes>(in[0], attrs, out, 1, 1);
}

// Whether x takes the place of the best so far; the first NaN beats every number.
constexpr auto kAbove = [](auto x, auto best) { return x > best || (x != x && best == best); };
constexpr auto kBelow = [](auto x, auto best) { return x < best || (x != x && best == best); };

void eval_max(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  eval_fold<[](auto best, auto x) { return kAbove(x, best) ? x : best; }>(
      in[0], attrs, out, -std::numeric_limits<double>::infinity(),
      std::numeric_limits<std::int64_t>::min());
}
void eval_min(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  eval_fold<[](auto best, auto x) { return kBelow(x, best) ? x : best; }>(
      in[0], attrs, out, std::numeric_limits<double>::infinity(),
      std::numeric_limits<std::int64_t>::max());
}
void eval_any(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  eval_fold<[](auto any, auto x) { return decltype(any)(any != 0 || x != 0); }>(in[0], attrs, out,
                                                                                0, 0);
}
void eval_all(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  eval_fold<[](auto all, auto x) { return decltype(all)(all != 0 && x != 0); }>(in[0], attrs, out,
                                                                                1, 1);
}

// The first place of the extreme in the row-major order of the reduced axes.
template <auto beats>
void eval_place(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const ConstView& x = in[0];
  const Dims axes = attrs.dims("axis");
  const Strides places = strides_in_input(x.shape, attrs, out.strides);
  Shape kept, reduced;
  Strides kept_strides, reduced_strides, kept_places;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool is_reduced = axes.contains(axis);
    (is_reduced ? reduced : kept).push_back(x.shape[axis]);
    (is_reduced ? reduced_strides : kept_strides).push_back(x.strides[axis]);
    if (!is_reduced) kept_places.push_back(places[axis]);
  }
  dispatch(x.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    const auto choose = [&](std::int64_t from, std::int64_t to) {
      const T* line = x.as<T>() + from;
      auto best = static_cast<Compute<T>>(*line);
      std::int64_t place = 0, here = 0;
      const auto visit = [&](std::int64_t offset) {
        const auto value = static_cast<Compute<T>>(line[offset]);
        if (beats(value, best)) {
          best = value;
          place = here;
        }
        ++here;
      };
      for_each_index(reduced, visit, reduced_strides);
      out.as<std::int64_t>()[to] = place;
    };
    for_each_index(kept, choose, kept_strides, kept_places);
  });
}

constexpr OpInfo row(Op op, std::string_view name, decltype(OpInfo::infer) infer,
                     decltype(OpInfo::eval) eval) {
  return {op, name, 1, 1, Pattern::reduction, infer, eval};
}
constexpr OpInfo kReduceRows[] = {
    row(Op::sum, "sum", infer_sum, eval_sum),
    row(Op::mean, "mean", infer_mean, eval_mean),
    row(Op::prod, "prod", infer_sum, eval_prod),
    row(Op::max, "max", infer_extreme<Op::max>, eval_max),
    row(Op::min, "min", infer_extreme<Op::min>, eval_min),
    row(Op::var, "var", infer_var, eval_var),
    row(Op::any, "any", infer_flag, eval_any),
    row(Op::all, "all", infer_flag, eval_all),
    row(Op::argmax, "argmax", infer_extreme<Op::argmax>, eval_place<kAbove>),
    row(Op::argmin, "argmin", infer_extreme<Op::argmin>, eval_place<kBelow>),
};

Tensor reduce(Op op, const Tensor& x, const Axes& axis, bool keepdims) {
  return apply_op(op, {x},
                  {{"axis", axis.resolve(x.rank(), info(op).name)}, {"keepdims", keepdims}});
}

}  // namespace

std::span<const OpInfo> reduce_ops() { return kReduceRows; }

Tensor sum(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::sum, x, axis, keepdims);
}
Tensor mean(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::mean, x, axis, keepdims);
}
Tensor prod(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::prod, x, axis, keepdims);
}
Tensor max(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::max, x, axis, keepdims);
}
Tensor min(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::min, x, axis, keepdims);
}
Tensor any(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::any, x, axis, keepdims);
}
Tensor all(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::all, x, axis, keepdims);
}
Tensor argmax(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::argmax, x, axis, keepdims);
}
Tensor argmin(const Tensor& x, const Axes& axis, bool keepdims) {
  return reduce(Op::argmin, x, axis, keepdims);
}

Tensor var(const Tensor& x, const Axes& axis, bool keepdims, double ddof) {
  const Dims axes = axis.resolve(x.rank(), "var");
  return apply_op(Op::var, {x}, {{"axis", axes}, {"keepdims", keepdims}, {"ddof", ddof}});
}

Tensor std(const Tensor& x, const Axes& axis, bool keepdims, double ddof) {
  // The variance of f16 elements overflows f16 from a deviation of 256 on.
  if (x.dtype() == f16 || x.dtype() == bf16)
    return cast(sqrt(var(cast(x, f32), axis, keepdims, ddof)), x.dtype());
  return sqrt(var(x, axis, keepdims, ddof));
}

}  // namespace tensor

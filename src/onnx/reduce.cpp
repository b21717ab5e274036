// Reductions, softmax and its relatives, and scans.
#include <algorithm>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

struct Reduced {
  Axes axes;
  bool keeps_axes = true, is_nothing = false;
};

// Axes are an input from opset 13 (ReduceSum) or 18 on, an attribute before; none means all.
Reduced reduced(const Call& c) {
  const Ints list = c.has(1) ? c.ints(1) : c.ints("axes");
  Reduced result;
  if (!list.empty()) result.axes = Axes(Dims(list));
  result.keeps_axes = c.integer("keepdims", 1) != 0;
  result.is_nothing = list.empty() && c.integer("noop_with_empty_axes", 0) != 0;
  return result;
}

// F reduces what `before` makes of the elements; `after` gets the result.
template <Tensor (*F)(const Tensor&, const Axes&, bool)>
Tensor reduce(const Call& c, const Tensor& x) {
  const Reduced how = reduced(c);
  return (how.is_nothing ? x : F(x, how.axes, how.keeps_axes)).to(c[0].dtype());
}
template <Tensor (*F)(const Tensor&, const Axes&, bool)>
Results plain(const Call& c) {
  return {reduce<F>(c, c[0])};
}
// Of no elements the largest is the least that there is, and the other way round.
template <Tensor (*F)(const Tensor&, const Axes&, bool)>
Results extreme(const Call& c, bool is_most) {
  const Tensor& x = c[0];
  const Reduced how = reduced(c);
  if (x.size() > 0 || how.is_nothing) return {reduce<F>(c, x)};
  const auto [least, most] = limits_of(x.dtype());
  const Shape shape = sum(x, how.axes, how.keeps_axes).shape();
  return {broadcast_to(full({}, is_most ? least : most).to(x.dtype()), shape)};
}
Results largest(const Call& c) { return extreme<max>(c, true); }
Results smallest(const Call& c) { return extreme<min>(c, false); }
Results l1(const Call& c) { return {reduce<sum>(c, abs(c[0]))}; }
Results l2(const Call& c) { return {sqrt(reduce<sum>(c, square(c[0]))).to(c[0].dtype())}; }
Results sum_square(const Call& c) { return {reduce<sum>(c, square(c[0]))}; }
Results log_sum(const Call& c) { return {log(reduce<sum>(c, c[0])).to(c[0].dtype())}; }
Results log_sum_exp(const Call& c) {
  const Reduced how = reduced(c);
  const Tensor x = is_floating(c[0].dtype()) ? c[0] : c[0].to(f64);
  if (how.is_nothing) return {c[0]};
  // What is infinite stays out of the differences.
  const Tensor most = max(x, how.axes, true), top = where(isfinite(most), most, 0);
  const Tensor result = log(sum(exp(x - top), how.axes, true)) + top;
  return {reshape(result, sum(x, how.axes, how.keeps_axes).shape()).to(c[0].dtype())};
}

template <Tensor (*F)(const Tensor&, const Axes&, bool)>
Results extreme_place(const Call& c) {
  const int axis = normalize_axis(c.integer("axis", 0), c[0].rank(), "axis");
  const bool keeps_axis = c.integer("keepdims", 1) != 0;
  if (c.integer("select_last_index", 0) == 0) return {F(c[0], axis, keeps_axis)};
  return {c[0].shape(axis) - 1 - F(flip(c[0], axis), axis, keeps_axis)};
}

// Before opset 13 all axes from `axis` on are one.
template <class F>
Tensor along(const Call& c, const F& function) {
  const Tensor& x = c[0];
  if (c.opset() >= 13) return function(x, normalize_axis(c.integer("axis", -1), x.rank(), "axis"));
  const int axis = normalize_axis(c.integer("axis", 1), x.rank(), "axis");
  Shape flat;
  std::int64_t rest = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (i < axis)
      flat.push_back(x.shape(i));
    else
      rest *= x.shape(i);
  flat.push_back(rest);
  return reshape(function(reshape(x, flat), axis), x.shape());
}

Results softmax_of(const Call& c) {
  return {along(c, [](const Tensor& x, int axis) { return softmax(x, axis); })};
}
Results log_softmax_of(const Call& c) {
  return {along(c, [](const Tensor& x, int axis) { return log_softmax(x, axis); })};
}
// One at the first maximum of every line.
Results hardmax(const Call& c) {
  return {along(c, [](const Tensor& x, int axis) {
    Shape places = Shape::filled(x.rank(), 1);
    places[axis] = x.shape(axis);
    const Tensor at = arange(x.shape(axis)).reshape(places).to(x.device());
    return (argmax(x, axis, true) == at).to(x.dtype());
  })};
}

Results cumsum_of(const Call& c) {
  const int axis = normalize_axis(c.host(1).item<std::int64_t>(), c[0].rank(), "axis");
  const bool is_reverse = c.integer("reverse", 0) != 0;
  Tensor x = is_reverse ? flip(c[0], axis) : c[0];
  x = cumsum(x, axis).to(c[0].dtype());
  if (c.integer("exclusive", 0) != 0 && x.shape(axis) > 0) {
    std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(x.rank()));
    widths[static_cast<std::size_t>(axis)].first = 1;
    x = pad(sliced(x, axis, 0, x.shape(axis) - 1), widths);
  }
  return {is_reverse ? flip(x, axis) : x};
}

constexpr std::string_view kReduce = "axes:I keepdims:i noop_with_empty_axes:i";
constexpr std::string_view kExtreme = "axis:i keepdims:i select_last_index:i";

constexpr Operator kReduceRows[] = {
    {"ReduceSum", 1, 1, 2, 1, kReduce, plain<sum>},
    {"ReduceMean", 1, 1, 2, 1, kReduce, plain<mean>},
    {"ReduceMax", 1, 1, 2, 1, kReduce, largest},
    {"ReduceMin", 1, 1, 2, 1, kReduce, smallest},
    {"ReduceProd", 1, 1, 2, 1, kReduce, plain<prod>},
    {"ReduceL1", 1, 1, 2, 1, kReduce, l1},
    {"ReduceL2", 1, 1, 2, 1, kReduce, l2},
    {"ReduceSumSquare", 1, 1, 2, 1, kReduce, sum_square},
    {"ReduceLogSum", 1, 1, 2, 1, kReduce, log_sum},
    {"ReduceLogSumExp", 1, 1, 2, 1, kReduce, log_sum_exp},
    {"ArgMax", 1, 1, 1, 1, kExtreme, extreme_place<argmax>},
    {"ArgMin", 1, 1, 1, 1, kExtreme, extreme_place<argmin>},
    {"Softmax", 1, 1, 1, 1, "axis:i", softmax_of},
    {"LogSoftmax", 1, 1, 1, 1, "axis:i", log_softmax_of},
    {"Hardmax", 1, 1, 1, 1, "axis:i", hardmax},
    {"CumSum", 11, 2, 2, 1, "exclusive:i reverse:i", cumsum_of},
};

}  // namespace

std::span<const Operator> reduce_operators() { return kReduceRows; }

}  // namespace tensor::onnx

// Compositions that describe the elements of a tensor: counts, norms, quantiles, histograms.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/core/storage.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// The floating type of a statistic of x: integers and bool give f64.
DType real_type(DType dtype) { return is_floating(dtype) ? dtype : f64; }

// The elements of each result as the last axis, sorted; NaN is last.
Tensor sorted_lines(const Tensor& x, const Dims& axes) {
  Dims order;
  Shape shape;
  std::int64_t length = 1;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!axes.contains(axis)) order.push_back(axis), shape.push_back(x.shape(axis));
  for (const std::int64_t axis : axes)
    order.push_back(axis), length *= x.shape(static_cast<int>(axis));
  shape.push_back(length);
  return sort(reshape(transpose(x, order), shape), -1);
}

// With the reduced axes back as 1 if they are to be kept; `leading` axes stand before all others.
Tensor with_kept(const Tensor& result, const Dims& axes, bool keepdims, int leading = 0) {
  if (!keepdims) return result;
  Shape shape = result.shape();
  for (const std::int64_t axis : axes) shape.insert(static_cast<int>(axis) + leading, 1);
  return reshape(result, shape);
}

// Whether a comes before b in the order of sort.
Tensor sorts_before(const Tensor& a, const Tensor& b) {
  return is_floating(a.dtype()) ? (a < b) | (isnan(b) & !isnan(a)) : a < b;
}

}  // namespace

Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  if (!is_floating(x.dtype())) return copy(x);
  const double most = x.dtype() == f16    ? 65504.0
                      : x.dtype() == bf16 ? 0x1.FEp127
                      : x.dtype() == f32  ? double{std::numeric_limits<float>::max()}
                                          : std::numeric_limits<double>::max();
  const auto number = [&](double value) { return full({}, value, x.dtype()).to(x.device()); };
  const Tensor finite = where(x == kInfinite, number(posinf.value_or(most)),
                              where(x == -kInfinite, number(neginf.value_or(-most)), x));
  return where(isnan(x), number(nan), finite);
}

Tensor count_nonzero(const Tensor& x, const Axes& axis, bool keepdims) {
  return sum(x.astype(boolean), axis, keepdims);
}

Tensor logsumexp(const Tensor& x, const Axes& axis, bool keepdims) {
  const DType dtype = floating_type(x.dtype());
  const Tensor y = cast(x, wide_type(dtype)), top = max(y, axis, true);
  const Tensor shift = where(isfinite(top), top, zeros({}, y.dtype()).to(x.device()));
  const Tensor result = log(sum(exp(y - shift), axis, true)) + shift;
  return cast(keepdims ? result : squeeze(result, axis.resolve(x.rank(), "logsumexp")), dtype);
}

Tensor vector_norm(const Tensor& x, double ord, const Axes& axis, bool keepdims) {
  if (std::isnan(ord)) fail("vector_norm", "got the order NaN, need a number");
  const DType dtype = real_type(x.dtype());
  const Tensor sizes = abs(cast(x, wide_type(dtype)));
  const auto norm = [&]() -> Tensor {
    if (ord == kInfinite) return max(sizes, axis, keepdims);
    if (ord == -kInfinite) return min(sizes, axis, keepdims);
    if (ord == 0) return count_nonzero(sizes, axis, keepdims);
    if (ord == 1) return sum(sizes, axis, keepdims);
    if (ord == 2) return sqrt(sum(square(sizes), axis, keepdims));
    return power(sum(power(sizes, ord), axis, keepdims), 1 / ord);
  };
  return cast(norm(), dtype);
}

Tensor median(const Tensor& x, const Axes& axis, bool keepdims) {
  const Dims axes = axis.resolve(x.rank(), "median");
  const Tensor lines = sorted_lines(cast(x, wide_type(real_type(x.dtype()))), axes);
  const std::int64_t length = lines.shape(-1);
  if (length == 0) return cast(mean(x, axis, keepdims), real_type(x.dtype()));
  const int last = lines.rank() - 1;
  const Tensor middle = mean(slice_axis(lines, last, (length - 1) / 2, 2 - length % 2), -1, false);
  const Tensor greatest = squeeze(slice_axis(lines, last, length - 1, 1), last);
  return cast(with_kept(where(isnan(greatest), greatest, middle), axes, keepdims),
              real_type(x.dtype()));
}

Tensor quantile(const Tensor& x, const Tensor& q, const Axes& axis, bool keepdims) {
  const Dims axes = axis.resolve(x.rank(), "quantile");
  const DType dtype = real_type(x.dtype());
  const Tensor lines = sorted_lines(cast(x, wide_type(dtype)), axes);
  const std::int64_t length = lines.shape(-1);
  if (length == 0)
    fail("quantile", "there are no elements along the axes ", axes, " of ", x.type());
  if (!detail::impl(q).recorder)
    for (const double number : q.to_vector<double>())
      if (!(number >= 0 && number <= 1))
        fail("quantile", "got q = ", number, ", need numbers from 0 to 1");
  const Tensor place = cast(q, f64).to(x.device()) * static_cast<double>(length - 1);
  const Tensor below = floor(place), above = minimum(below + 1, static_cast<double>(length - 1));
  const Tensor share = cast(place - below, lines.dtype());
  // The axes of q first, then those of the lines that are left.
  Shape spread = q.shape();
  for (int i = 0; i + 1 < lines.rank(); ++i) spread.push_back(1);
  const Tensor ahead = moveaxis(lines, lines.rank() - 1, 0);
  const Tensor a = take(ahead, below.astype(i64), 0), b = take(ahead, above.astype(i64), 0);
  const Tensor t = reshape(share, spread), step = b - a;
  const Tensor between = where(t < 0.5, a + step * t, b - step * (1 - t));
  const Tensor greatest = squeeze(slice_axis(ahead, 0, length - 1, 1), 0);
  const Tensor result = where(isnan(greatest), greatest, where(a == b, a, between));
  return cast(with_kept(result, axes, keepdims, q.rank()), dtype);
}

Tensor searchsorted(const Tensor& a, const Tensor& v, bool right) {
  if (a.rank() != 1)
    fail("searchsorted", "got a of the shape ", a.shape(), ", need a sorted vector");
  const Tensor both[] = {a, v};
  const DType dtype = result_type(both, "searchsorted");
  const Tensor sorted = cast(a, dtype), wanted = cast(v, dtype);
  const std::int64_t length = a.size();
  Tensor count = zeros(v.shape(), i64).to(a.device());
  // Every step finds one binary digit of how many elements come before.
  for (std::uint64_t step = std::bit_floor(static_cast<std::uint64_t>(length)); step > 0;
       step /= 2) {
    const Tensor probe = count + static_cast<std::int64_t>(step);
    const Tensor element = take(sorted, minimum(probe, length) - 1, 0);
    const Tensor before = right ? !sorts_before(wanted, element) : sorts_before(element, wanted);
    count = where((probe <= length) & before, probe, count);
  }
  return count;
}

std::pair<Tensor, Tensor> histogram(const Tensor& x, std::int64_t bins,
                                    const std::optional<std::pair<double, double>>& range) {
  if (bins < 1) fail("histogram", "got ", bins, " bins, need at least 1");
  if (range && !(std::isfinite(range->first) && std::isfinite(range->second) &&
                 range->first <= range->second))
    fail("histogram", "got the range from ", range->first, " to ", range->second,
         ", need finite numbers in this order");
  const DType dtype = real_type(x.dtype());
  Tensor low = zeros({}, f64), high = ones({}, f64);
  if (range) {
    low = low + range->first, high = full({}, range->second, f64);
  } else if (x.size() > 0) {
    low = cast(min(x), f64), high = cast(max(x), f64);
    if (!detail::impl(x).recorder && !all(isfinite(high - low)).item<bool>())
      fail("histogram", "the elements go from ", low.item(), " to ", high.item(),
           ", need finite ones: give a range");
  }
  const Tensor is_point = low == high, half = where(is_point, Tensor(0.5), Tensor(0.0));
  low = low - half, high = high + half;
  const Tensor inner =
      arange(bins).astype(f64).to(x.device()) * ((high - low) / static_cast<double>(bins)) + low;
  const Tensor edges = cast(concatenate({inner, reshape(high, {1})}), dtype);
  const Tensor line = sort(ravel(x), 0);
  const Tensor before = concatenate({searchsorted(line, slice_axis(edges, 0, 0, bins)),
                                     searchsorted(line, slice_axis(edges, 0, bins, 1), true)});
  return {diff(before), edges};
}

}  // namespace tensor

// cumsum, cumprod, sort and argsort along one axis, and topk built on them. Sorting is stable and
// NaN counts as the largest.
#include <algorithm>
#include <numeric>

#include "src/ops/lines.h"
#include "src/ops/op.h"
#include "src/ops/view.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr auto kSortsBefore = [](auto a, auto b) { return a < b || (b != b && a == a); };

// Integers wrap around.
template <class A>
using Total = std::conditional_t<std::is_integral_v<A>, std::uint64_t, A>;

constexpr auto kRunningSum = []<class A>(std::span<A> row) {
  Total<A> total = 0;
  for (A& x : row) x = static_cast<A>(total += static_cast<Total<A>>(x));
};
constexpr auto kRunningProduct = []<class A>(std::span<A> row) {
  Total<A> total = 1;
  for (A& x : row) x = static_cast<A>(total *= static_cast<Total<A>>(x));
};

constexpr auto kSorted = [](auto row) { std::stable_sort(row.begin(), row.end(), kSortsBefore); };

// Each of the first `count` places gets the index of the element that belongs there. Elements go
// along with their indices, which the order of equal ones is by, so that comparing reads no other
// memory.
template <class A>
void order_row(std::span<A> row, std::int64_t count, bool descending) {
  std::vector<std::pair<A, std::int64_t>> order;
  order.reserve(row.size());
  for (const A x : row) order.emplace_back(x, std::ssize(order));
  const auto comes_before = [&](const auto& i, const auto& j) {
    const A a = descending ? j.first : i.first, b = descending ? i.first : j.first;
    return kSortsBefore(a, b) || (!kSortsBefore(b, a) && i.second < j.second);
  };
  const auto end = order.begin() + count;
  if (end != order.end()) std::nth_element(order.begin(), end, order.end(), comes_before);
  std::sort(order.begin(), end, comes_before);
  std::transform(order.begin(), end, row.begin(),
                 [](const auto& x) { return static_cast<A>(x.second); });
}

// ---- Type rules. Attributes: axis (not negative); of argsort, descending and, where only the
// first places are wanted, count.

TensorType infer_cumsum(std::span<const TensorType> in, const Attrs& attrs) {
  stored_axis(attrs, in[0].shape.rank(), "cumsum");
  return {in[0].shape, is_floating(in[0].dtype) ? in[0].dtype : i64};
}
TensorType infer_cumprod(std::span<const TensorType> in, const Attrs& attrs) {
  stored_axis(attrs, in[0].shape.rank(), "cumprod");
  return {in[0].shape, is_floating(in[0].dtype) ? in[0].dtype : i64};
}
TensorType infer_sort(std::span<const TensorType> in, const Attrs& attrs) {
  stored_axis(attrs, in[0].shape.rank(), "sort");
  return in[0];
}
TensorType infer_argsort(std::span<const TensorType> in, const Attrs& attrs) {
  const int axis = stored_axis(attrs, in[0].shape.rank(), "argsort");
  attrs.flag("descending");
  Shape shape = in[0].shape;
  const std::int64_t count = attrs.integer("count", shape[axis]);
  if (count < 0 || count > shape[axis])
    fail("argsort", "got count=", count, " along axis ", axis, " of the shape ", shape);
  shape[axis] = count;
  return {shape, i64};
}

// ---- Kernels.

void eval_cumsum(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    using R = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    transform_lines<T, R>(in[0], axis, out, kRunningSum);
  });
}

void eval_cumprod(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    using R = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
    transform_lines<T, R>(in[0], axis, out, kRunningProduct);
  });
}

void eval_sort(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    transform_lines<T, T>(in[0], axis, out, kSorted);
  });
}

void eval_argsort(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = static_cast<int>(attrs.integer("axis"));
  const bool descending = attrs.flag("descending");
  dispatch(in[0].dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    transform_lines<T, std::int64_t>(
        in[0], axis, out, [&](auto row) { order_row(row, out.shape[axis], descending); });
  });
}

constexpr OpInfo kScanRows[] = {
    {Op::cumsum, "cumsum", 1, 1, Pattern::opaque, infer_cumsum, eval_cumsum},
    {Op::cumprod, "cumprod", 1, 1, Pattern::opaque, infer_cumprod, eval_cumprod},
    {Op::sort, "sort", 1, 1, Pattern::opaque, infer_sort, eval_sort},
    {Op::argsort, "argsort", 1, 1, Pattern::opaque, infer_argsort, eval_argsort},
};

}  // namespace

std::span<const OpInfo> scan_ops() { return kScanRows; }

Tensor cumsum(const Tensor& x, int axis) {
  return apply_op(Op::cumsum, {x}, {{"axis", normalize_axis(axis, x.rank(), "cumsum")}});
}

Tensor cumprod(const Tensor& x, int axis) {
  return apply_op(Op::cumprod, {x}, {{"axis", normalize_axis(axis, x.rank(), "cumprod")}});
}

Tensor sort(const Tensor& x, int axis) {
  return apply_op(Op::sort, {x}, {{"axis", normalize_axis(axis, x.rank(), "sort")}});
}

Tensor argsort(const Tensor& x, int axis) {
  const int at = normalize_axis(axis, x.rank(), "argsort");
  return apply_op(Op::argsort, {x}, {{"axis", at}, {"descending", false}});
}

std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, int axis, bool largest) {
  const int at = normalize_axis(axis, x.rank(), "topk");
  if (k < 0 || k > x.shape(at))
    fail("topk", "got k = ", k, " for the ", x.shape(at), " elements along axis ", at,
         " of the shape ", x.shape());
  const Tensor indices =
      apply_op(Op::argsort, {x}, {{"axis", at}, {"descending", largest}, {"count", k}});
  return {take_along_axis(x, indices, at), indices};
}

}  // namespace tensor

// Positions of elements: indices of several numbers, classes, and what is found by looking at
// values (nonzero, unique, nms), which cannot be traced.
#include <algorithm>
#include <numeric>

#include "src/core/storage.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr std::string_view kDependsOnValues =
    "how many there are depends on them, leave it out of functions that are traced";

// The indices' last axis as one number: a position in the first `count` axes of x behind `first`,
// taken as one axis. The size of that axis where a number is out of bounds, which take refuses.
Tensor flat_positions(const Tensor& x, const Tensor& indices, int first, int count,
                      std::string_view where) {
  Tensor flat, inside;
  std::int64_t size = 1;
  for (int i = 0; i < count; ++i) {
    const std::int64_t extent = x.shape(first + i);
    const Tensor index = squeeze(slice_axis(indices, indices.rank() - 1, i, 1), -1);
    const Tensor fits = (index >= -extent) & (index < extent);
    if (!detail::impl(indices).recorder && !all(fits).item<bool>())
      fail(where, "an index is out of bounds for axis ", first + i, " of the shape ", x.shape());
    const Tensor counted = cast(tensor::where(index < 0, index + extent, index), i64);
    flat = i == 0 ? counted : flat * extent + counted;
    inside = i == 0 ? fits : inside & fits;
    size *= extent;
  }
  return tensor::where(inside, flat, full({}, size, i64).to(x.device()));
}

// Checks what gather_nd and scatter_nd share, and returns how many numbers an index has.
int index_length(const Tensor& x, const Tensor& indices, int batch_dims, std::string_view where) {
  if (kind_of(indices.dtype()) != Kind::integer)
    fail(where, "got indices of ", indices.dtype(), ", need integers");
  if (indices.rank() == 0)
    fail(where, "got indices of the shape (), need the numbers of an index as their last axis");
  if (batch_dims < 0 || batch_dims >= indices.rank() || batch_dims > x.rank())
    fail(where, "got ", batch_dims, " batch axes for the shape ", x.shape(),
         " and indices of the shape ", indices.shape());
  for (int axis = 0; axis < batch_dims; ++axis)
    if (x.shape(axis) != indices.shape(axis))
      fail(where, "got the shape ", x.shape(), " and indices of the shape ", indices.shape(),
           ", need the same first ", batch_dims, " axes");
  const std::int64_t length = indices.shape(-1);
  if (length < 1 || length > x.rank() - batch_dims)
    fail(where, "got indices of ", length, " numbers for the shape ", x.shape(),
         ", need from 1 to ", x.rank() - batch_dims);
  return static_cast<int>(length);
}

Shape part_of(const Shape& shape, int begin, int end) {
  Shape part;
  for (int axis = begin; axis < end; ++axis) part.push_back(shape[axis]);
  return part;
}

// The elements of a box or score, wherever they lie.
template <class T>
std::vector<std::int64_t> kept_boxes(const Tensor& boxes, const Tensor& order, double threshold) {
  const std::vector<T> corners = boxes.to_vector<T>();
  const auto box = [&](std::int64_t i) { return corners.data() + 4 * i; };
  const auto area = [](const T* b) { return (b[2] - b[0]) * (b[3] - b[1]); };
  const auto overlap = [&](const T* a, const T* b) {
    const T width = std::max(T(0), std::min(a[2], b[2]) - std::max(a[0], b[0]));
    const T height = std::max(T(0), std::min(a[3], b[3]) - std::max(a[1], b[1]));
    const T both = width * height;
    return both / (area(a) + area(b) - both);
  };
  std::vector<std::int64_t> kept;
  for (const std::int64_t i : order.to_vector<std::int64_t>())
    if (std::none_of(kept.begin(), kept.end(), [&](std::int64_t k) {
          return static_cast<double>(overlap(box(k), box(i))) > threshold;
        }))
      kept.push_back(i);
  return kept;
}

}  // namespace

Tensor gather_nd(const Tensor& x, const Tensor& indices, int batch_dims) {
  const int length = index_length(x, indices, batch_dims, "gather_nd");
  const Shape &from = x.shape(), &places = indices.shape();
  const std::int64_t batch = num_elements(part_of(from, 0, batch_dims)),
                     size = num_elements(part_of(from, batch_dims, batch_dims + length));
  const Shape rest = part_of(from, batch_dims + length, x.rank());
  const Shape chosen = part_of(places, batch_dims, places.rank() - 1);
  const Tensor lines = reshape(x, {batch, size, num_elements(rest)});
  const Tensor flat = flat_positions(x, indices, batch_dims, length, "gather_nd");
  return reshape(take_along_axis(lines, reshape(flat, {batch, num_elements(chosen), 1}), 1),
                 joined(part_of(places, 0, places.rank() - 1), rest));
}

Tensor scatter_nd(const Tensor& x, const Tensor& indices, const Tensor& updates) {
  const int length = index_length(x, indices, 0, "scatter_nd");
  const Shape rest = part_of(x.shape(), length, x.rank()),
              places = part_of(indices.shape(), 0, indices.rank() - 1);
  if (!(updates.shape() == joined(places, rest)))
    fail("scatter_nd", "got updates of the shape ", updates.shape(), " for indices of the shape ",
         indices.shape(), " in the shape ", x.shape(), ", need ", joined(places, rest));
  const std::int64_t size = num_elements(part_of(x.shape(), 0, length)), width = num_elements(rest),
                     count = num_elements(places);
  const Tensor flat = flat_positions(x, indices, 0, length, "scatter_nd");
  return reshape(put_along_axis(reshape(x, {size, width}), reshape(flat, {count, 1}),
                                reshape(updates, {count, width}), 0),
                 x.shape());
}

Tensor one_hot(const Tensor& x, std::int64_t num_classes) {
  if (kind_of(x.dtype()) != Kind::integer)
    fail("one_hot", "got classes of ", x.dtype(), ", need integers");
  if (num_classes < 1) fail("one_hot", "got ", num_classes, " classes, need at least 1");
  return cast(expand_dims(x, -1) == arange(num_classes).to(x.device()), i64);
}

std::vector<Tensor> nonzero(const Tensor& x) {
  detail::require_values(x, "nonzero", kDependsOnValues);
  if (x.rank() == 0) fail("nonzero", "got a 0-d tensor, which has no positions: reshape it to {1}");
  const Tensor here = cast(x.to(Device()), boolean);
  const auto values = here.elements<bool>();
  const std::int64_t count = std::count(values.begin(), values.end(), true);
  std::vector<Tensor> result;
  std::vector<std::int64_t*> places;
  for (int axis = 0; axis < x.rank(); ++axis) {
    result.push_back(empty({count}, i64));
    places.push_back(result.back().mutable_data<std::int64_t>());
  }
  std::int64_t i = 0;
  for (const bool value : values) {
    std::int64_t rest = i++;
    if (!value) continue;
    for (auto axis = places.size() - 1; axis > 0; rest /= x.shape(static_cast<int>(axis--)))
      *places[axis]++ = rest % x.shape(static_cast<int>(axis));
    *places[0]++ = rest;
  }
  for (Tensor& axis : result) axis = axis.to(x.device());
  return result;
}

Unique unique_all(const Tensor& x) {
  detail::require_values(x, "unique", kDependsOnValues);
  const Tensor line = ravel(x), order = argsort(line), sorted = take(line, order, 0);
  if (x.size() == 0) return {line, order, reshape(order, x.shape()), order};
  const std::int64_t count = line.size();
  const Tensor next = slice_axis(sorted, 0, 1, count - 1),
               last = slice_axis(sorted, 0, 0, count - 1);
  const Tensor first = full({1}, true).to(x.device());
  const Tensor is_new = concatenate({first, (next != last) & !((next != next) & (last != last))});
  const Tensor begins = nonzero(is_new)[0];
  const Tensor ends = concatenate(
      {slice_axis(begins, 0, 1, begins.size() - 1), full({1}, count, i64).to(x.device())});
  const Tensor numbers = cumsum(is_new, 0) - 1;
  return {take(sorted, begins, 0), take(order, begins, 0),
          reshape(put_along_axis(numbers, order, numbers, 0), x.shape()), ends - begins};
}

Tensor unique(const Tensor& x) { return unique_all(x).values; }

Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold) {
  for (const Tensor& x : {boxes, scores}) detail::require_values(x, "nms", kDependsOnValues);
  if (boxes.rank() != 2 || boxes.shape(1) != 4 || !(scores.shape() == Shape{boxes.shape(0)}))
    fail("nms", "got boxes of the shape ", boxes.shape(), " and scores of ", scores.shape(),
         ", need (n, 4) and (n,)");
  const Tensor order = argsort(-cast(scores, scores.dtype() == f64 ? f64 : f32));
  return array(boxes.dtype() == f64 ? kept_boxes<double>(boxes, order, iou_threshold)
                                    : kept_boxes<float>(boxes, order, iou_threshold))
      .to(boxes.device());
}

}  // namespace tensor

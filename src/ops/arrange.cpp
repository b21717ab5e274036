// Compositions that move elements: axes to other places, elements round an axis or around a tensor,
// diagonals out of and into matrices.
#include <algorithm>
#include <numeric>

#include "src/core/storage.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

// Which elements of an axis of `extent` stand in the widened axis.
std::vector<std::int64_t> padded_places(std::int64_t extent, std::int64_t before,
                                        std::int64_t after, PadMode mode) {
  const auto modulo = [](std::int64_t i, std::int64_t n) { return (i % n + n) % n; };
  std::vector<std::int64_t> places;
  for (std::int64_t i = -before; i < extent + after; ++i) {
    std::int64_t place = 0;
    if (mode == PadMode::edge) {
      place = std::clamp<std::int64_t>(i, 0, extent - 1);
    } else if (mode == PadMode::wrap) {
      place = modulo(i, extent);
    } else if (mode == PadMode::symmetric) {
      const std::int64_t at = modulo(i, 2 * extent);
      place = std::min(at, 2 * extent - 1 - at);
    } else if (extent > 1) {
      const std::int64_t at = modulo(i, 2 * extent - 2);
      place = std::min(at, 2 * extent - 2 - at);
    }
    places.push_back(place);
  }
  return places;
}

}  // namespace

Tensor moveaxis(const Tensor& x, const Dims& source, const Dims& destination) {
  if (source.rank() != destination.rank())
    fail("moveaxis", "got the axes ", source, " and the places ", destination,
         ", need as many of both");
  const Dims from = distinct_axes(source, x.rank(), "moveaxis"),
             to = distinct_axes(destination, x.rank(), "moveaxis");
  Dims axes;
  for (int place = 0, axis = 0; place < x.rank(); ++place) {
    const auto moved = std::find(to.begin(), to.end(), place) - to.begin();
    if (moved < to.rank()) {
      axes.push_back(from[static_cast<int>(moved)]);
      continue;
    }
    while (from.contains(axis)) ++axis;
    axes.push_back(axis++);
  }
  return transpose(x, axes);
}

Tensor moveaxis(const Tensor& x, int source, int destination) {
  return moveaxis(x, Dims{source}, Dims{destination});
}

Tensor ravel(const Tensor& x) { return reshape(x, {x.size()}); }

Tensor roll(const Tensor& x, std::int64_t shift, int axis) {
  const int at = normalize_axis(axis, x.rank(), "roll");
  const std::int64_t extent = x.shape(at);
  if (extent == 0) return copy(x);
  const std::int64_t moved = (shift % extent + extent) % extent;
  return concatenate(
      {slice_axis(x, at, extent - moved, moved), slice_axis(x, at, 0, extent - moved)}, at);
}

Tensor roll(const Tensor& x, std::int64_t shift) {
  return reshape(roll(ravel(x), shift, 0), x.shape());
}

Tensor roll(const Tensor& x, const Dims& shift, const Dims& axis) {
  if (shift.rank() != axis.rank())
    fail("roll", "got the shifts ", shift, " and the axes ", axis, ", need as many of both");
  Tensor result = x;
  for (int i = 0; i < axis.rank(); ++i)
    result = roll(result, shift[i], normalize_axis(axis[i], x.rank(), "roll"));
  return apart(result, x);
}

Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& pad_width,
           PadMode mode) {
  const auto rank = static_cast<std::size_t>(x.rank());
  if (pad_width.size() != 1 && pad_width.size() != rank)
    fail("pad", "got widths for ", pad_width.size(), " axes for the shape ", x.shape(), ", need ",
         rank, " (or one pair for all axes)");
  Tensor result = x;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto [before, after] =
        pad_width[pad_width.size() == 1 ? 0 : static_cast<std::size_t>(axis)];
    if (before < 0 || after < 0)
      fail("pad", "got the widths ", before, " and ", after, " for axis ", axis,
           ", need at least 0: leave elements out with a slice");
    if (before == 0 && after == 0) continue;
    if (x.shape(axis) == 0)
      fail("pad", "axis ", axis, " of the shape ", x.shape(),
           " is empty, and has nothing to repeat: pad it with a constant");
    num_elements({x.shape(axis) + before, after + 1});
    const Tensor places = array(padded_places(x.shape(axis), before, after, mode));
    result = take(result, places.to(x.device()), axis);
  }
  return apart(result, x);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& x, std::string_view indexing) {
  if (indexing != "xy" && indexing != "ij")
    fail("meshgrid", "got the indexing \"", indexing, "\", need xy or ij");
  const int rank = static_cast<int>(x.size());
  Shape shape;
  for (const Tensor& vector : x) {
    if (vector.rank() > 1)
      fail("meshgrid", "got a tensor of the shape ", vector.shape(), ", need vectors");
    shape.push_back(vector.size());
  }
  const auto axis_of = [&](int i) { return indexing == "xy" && rank > 1 && i < 2 ? 1 - i : i; };
  if (axis_of(0) == 1) std::swap(shape[0], shape[1]);
  std::vector<Tensor> result;
  for (int i = 0; i < rank; ++i) {
    const Tensor& vector = x[static_cast<std::size_t>(i)];
    Shape along = Dims::filled(rank, 1);
    along[axis_of(i)] = vector.size();
    result.push_back(copy(broadcast_to(reshape(vector, along), shape)));
  }
  return result;
}

Tensor diagonal(const Tensor& x, std::int64_t offset, int axis1, int axis2) {
  if (x.rank() < 2) fail("diagonal", "got the shape ", x.shape(), ", need at least 2 axes");
  const Dims pair = distinct_axes({axis1, axis2}, x.rank(), "diagonal");
  const Tensor matrices = moveaxis(x, pair, {-2, -1});
  const std::int64_t rows = matrices.shape(-2), columns = matrices.shape(-1),
                     begin = std::max<std::int64_t>(-offset, 0);
  const std::int64_t room = offset < 0
                                ? std::min(std::max<std::int64_t>(rows + offset, 0), columns)
                                : std::min(rows, std::max<std::int64_t>(columns - offset, 0));
  // As one axis, the diagonal is every (columns + 1)-th element.
  Shape flat = matrices.shape();
  flat.erase(flat.rank() - 1);
  flat[flat.rank() - 1] = rows * columns;
  const std::int64_t start = room == 0 ? 0 : begin * columns + std::max<std::int64_t>(offset, 0);
  return slice_axis(reshape(matrices, flat), flat.rank() - 1, start, room, columns + 1);
}

Tensor trace(const Tensor& x, std::int64_t offset, int axis1, int axis2) {
  return sum(diagonal(x, offset, axis1, axis2), -1);
}

Tensor diag(const Tensor& x, std::int64_t k) {
  if (x.rank() == 2) return copy(diagonal(x, k));
  if (x.rank() != 1) fail("diag", "got the shape ", x.shape(), ", need a vector or a matrix");
  const std::int64_t before = std::max<std::int64_t>(k, 0), after = std::max<std::int64_t>(-k, 0),
                     extent = x.size() + before + after;
  // Column j of a row has x's element j - k, wherever the diagonal is not cut off.
  const Tensor row = k >= 0 ? pad(x, {{before, 0}}) : pad(x, {{0, after}});
  const Tensor off = (arange(extent) - arange(extent).expand_dims(1)).to(x.device());
  return where(off == k, row, zeros({}, x.dtype()));
}

Tensor diff(const Tensor& x, std::int64_t n, int axis) {
  if (n < 0) fail("diff", "got n = ", n, ", need at least 0");
  const int at = normalize_axis(axis, x.rank(), "diff");
  Tensor result = x;
  for (; n > 0 && result.shape(at) > 0; --n) {
    const std::int64_t extent = result.shape(at) - 1;
    const Tensor next = slice_axis(result, at, 1, extent), last = slice_axis(result, at, 0, extent);
    result = x.dtype() == boolean ? not_equal(next, last) : next - last;
  }
  return apart(result, x);
}

}  // namespace tensor

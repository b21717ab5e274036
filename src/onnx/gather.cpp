// Operators that pick elements by positions, or put them there.
#include <algorithm>
#include <map>
#include <numeric>

#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

// Positions that are an arithmetic progression of at least one element are a slice, which is a
// view.
Tensor picked(const Tensor& x, const Tensor& indices, int axis) {
  constexpr std::int64_t kMany = 4096;
  if (is_traced(indices) || indices.size() == 0 || indices.size() > kMany || indices.rank() > 1)
    return take(x, indices, axis);
  Ints places = indices.to_vector<std::int64_t>();
  const std::int64_t extent = x.shape(axis);
  for (std::int64_t& place : places) {
    if (place < 0) place += extent;
    if (place < 0 || place >= extent) return take(x, indices, axis);  // refuses it
  }
  const std::int64_t step = places.size() > 1 ? places[1] - places[0] : 1;
  for (std::size_t i = 1; i < places.size(); ++i)
    if (places[i] - places[i - 1] != step || step == 0) return take(x, indices, axis);
  const Tensor part = sliced(x, axis, places[0], static_cast<std::int64_t>(places.size()), step);
  return indices.rank() == 0 ? squeeze(part, axis) : part;
}

Results gather_of(const Call& c) {
  return {picked(c[0], c[1], normalize_axis(c.integer("axis", 0), c[0].rank(), "gather"))};
}

Results gather_elements(const Call& c) {
  const int axis = normalize_axis(c.integer("axis", 0), c[0].rank(), "gather_elements");
  if (c[1].rank() != c[0].rank())
    fail("gather_elements", "got the shapes ", c[0].shape(), " and ", c[1].shape(),
         ", need one rank");
  Tensor x = c[0];
  for (int i = 0; i < x.rank(); ++i) {
    if (i == axis) continue;
    if (c[1].shape(i) > x.shape(i))
      fail("gather_elements", "got indices of the shape ", c[1].shape(), " into ", x.shape());
    x = sliced(x, i, 0, c[1].shape(i));
  }
  return {take_along_axis(x, c[1], axis)};
}

std::int64_t product(const Shape& shape, int from, int to) {
  std::int64_t result = 1;
  for (int i = from; i < to; ++i) result *= shape[i];
  return result;
}

// Rows [..., axes] of indices into the axes of `shape` from `first` on, as positions among the
// elements of these axes. UserError on those out of bounds, where they are known.
Tensor positions(const Tensor& indices, const Shape& shape, int first) {
  const auto axes = static_cast<int>(indices.shape(-1));
  Tensor result;
  for (int i = 0; i < axes; ++i) {
    const std::int64_t extent = shape[first + i];
    const Tensor index = squeeze(sliced(indices, indices.rank() - 1, i, 1), -1).to(i64);
    if (!is_traced(index) && !all((index >= -extent) & (index < extent)).item<bool>())
      fail("positions", "an index is out of bounds: axis ", first + i, " has the extent ", extent);
    const Tensor place = where(index < 0, index + extent, index);
    result = i == 0 ? place : result * extent + place;
  }
  return result;
}

void check_depth(const Shape& data, const Shape& indices, std::int64_t batch) {
  if (data.rank() == 0 || indices.rank() == 0 || batch < 0 || batch >= indices.rank() ||
      batch >= data.rank() || indices.back() < 1 || indices.back() > data.rank() - batch)
    fail("indices", "got the shape ", indices, " for data of ", data, ", and batch_dims=", batch);
}

Results gather_nd(const Call& c) {
  const Tensor &x = c[0], &indices = c[1];
  const auto batch =
      static_cast<int>(std::clamp<std::int64_t>(c.integer("batch_dims", 0), -1, kMaxRank));
  check_depth(x.shape(), indices.shape(), batch);
  const auto depth = static_cast<int>(indices.shape(-1));
  const int tail = batch + depth;
  const std::int64_t images = product(x.shape(), 0, batch);
  const std::int64_t each = product(x.shape(), batch, tail);
  Tensor place = positions(indices, x.shape(), batch);
  if (batch > 0) {
    Shape counts = Shape::filled(place.rank(), 1);
    for (int i = 0; i < batch; ++i) counts[i] = x.shape(i);
    place = place + (arange(images) * each).reshape(counts).to(place.device());
  }
  Shape flat{images * each};
  for (int i = tail; i < x.rank(); ++i) flat.push_back(x.shape(i));
  return {take(x.reshape(flat), place, 0)};
}

// Rows, and the place in the data that each of them goes to.
struct Updates {
  Tensor rows;
  Ints places;
};
using Combine = Tensor (*)(const Tensor&, const Tensor&);

Combine combination(const Call& c) {
  const std::string name = c.text("reduction", "none");
  if (name == "add") return add;
  if (name == "mul") return multiply;
  if (name == "max") return maximum;
  return name == "min" ? minimum : static_cast<Combine>(nullptr);
}

Tensor rows_at(const Tensor& x, const Ints& places) {
  return take(x, array(places).to(x.device()), 0);
}

// Updates of one place each with its neighbour, until every place has one: as many rounds as it
// takes to halve the most that a place has.
Updates combined(Updates updates, Combine combine) {
  for (;;) {
    std::map<std::int64_t, std::int64_t> waiting;  // the update of a place that has no partner yet
    Ints first, second, places;
    for (std::size_t i = 0; i < updates.places.size(); ++i) {
      const std::int64_t place = updates.places[i], row = static_cast<std::int64_t>(i);
      const auto [earlier, is_new] = waiting.try_emplace(place, row);
      if (is_new) continue;
      first.push_back(earlier->second), second.push_back(row), places.push_back(place);
      waiting.erase(earlier);
    }
    if (places.empty()) return updates;
    Ints alone;
    for (const auto& [place, row] : waiting) alone.push_back(row), places.push_back(place);
    Tensor rows = combine(rows_at(updates.rows, first), rows_at(updates.rows, second));
    if (!alone.empty()) rows = concatenate({rows, rows_at(updates.rows, alone)});
    updates = {rows, places};
  }
}

// Where positions lie side by side, as those of an assignment to a slice do: the first one's and
// how many there are, along some of the first axes of a shape.
struct Region {
  Ints first, extent;
};

// Of positions in order, one after the other; nullopt for others.
std::optional<Region> region_of(const Ints& places, const Shape& shape, int axes) {
  if (places.empty()) return std::nullopt;
  const auto on_axes = [&](std::int64_t place) {
    Ints index(static_cast<std::size_t>(axes));
    for (int axis = axes; axis-- > 0; place /= shape[axis])
      index[static_cast<std::size_t>(axis)] = place % shape[axis];
    return index;
  };
  Region region{on_axes(places.front()), on_axes(places.back())};
  std::size_t count = 1;
  for (std::size_t i = 0; i < region.extent.size(); ++i) {
    region.extent[i] += 1 - region.first[i];
    if (region.extent[i] < 1) return std::nullopt;
    count *= static_cast<std::size_t>(region.extent[i]);
  }
  if (count != places.size()) return std::nullopt;
  Ints expected{0};  // axis by axis
  for (int axis = 0; axis < axes; ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    Ints next;
    for (const std::int64_t place : expected)
      for (std::int64_t k = 0; k < region.extent[i]; ++k)
        next.push_back(place * shape[axis] + region.first[i] + k);
    expected = std::move(next);
  }
  return expected == places ? std::optional(region) : std::nullopt;
}

// The part of x in the region along the first axes.
Tensor in_region(Tensor x, const Region& region, std::size_t axes) {
  for (std::size_t i = 0; i < axes; ++i)
    x = sliced(x, static_cast<int>(i), region.first[i], region.extent[i]);
  return x;
}

// data with other values in the region: axis by axis what lies before it and behind it is put
// beside them, whole lines at a time.
Tensor with_region(const Tensor& data, const Tensor& values, const Region& region,
                   Combine combine) {
  Shape shape = data.shape();
  for (std::size_t i = 0; i < region.extent.size(); ++i)
    shape[static_cast<int>(i)] = region.extent[i];
  Tensor result = values.reshape(shape);
  if (combine) result = combine(in_region(data, region, region.extent.size()), result);
  for (std::size_t i = region.extent.size(); i-- > 0;) {
    const int axis = static_cast<int>(i);
    const std::int64_t end = region.first[i] + region.extent[i], whole = data.shape(axis);
    if (region.extent[i] == whole) continue;
    const Tensor around = in_region(data, region, i);
    result = concatenate(
        {sliced(around, axis, 0, region.first[i]), result, sliced(around, axis, end, whole - end)},
        axis);
  }
  return result;
}

// data with updates at the positions along its first axes: one gather from both, because the
// positions are known. Later updates win, unless all of a place are combined with what was there.
Tensor scattered(const Tensor& data, const Tensor& values, const Ints& places, int axes,
                 Combine combine) {
  if (const auto region = region_of(places, data.shape(), axes))
    return with_region(data, values, *region, combine);
  Shape rows{product(data.shape(), 0, axes)};
  for (int i = axes; i < data.rank(); ++i) rows.push_back(data.shape(i));
  Shape from = rows;
  from[0] = static_cast<std::int64_t>(places.size());
  Updates updates{values.reshape(from), places};
  const Tensor flat = data.reshape(rows);
  if (combine && !places.empty()) {
    updates = combined(updates, combine);
    updates.rows = combine(rows_at(flat, updates.places), updates.rows);
  }
  Ints source(static_cast<std::size_t>(rows[0]));
  std::iota(source.begin(), source.end(), 0);
  for (std::size_t i = 0; i < updates.places.size(); ++i)
    source[static_cast<std::size_t>(updates.places[i])] = rows[0] + static_cast<std::int64_t>(i);
  return rows_at(concatenate({flat, updates.rows}), source).reshape(data.shape());
}

Results scatter_nd(const Call& c) {
  const Tensor& x = c[0];
  const Tensor indices = c.host(1);
  check_depth(x.shape(), indices.shape(), 0);
  const auto depth = static_cast<int>(indices.shape(-1));
  return {scattered(x, c[2], positions(indices, x.shape(), 0).to_vector<std::int64_t>(), depth,
                    combination(c))};
}

Results scatter_elements(const Call& c) {
  const Tensor& x = c[0];
  const int axis = normalize_axis(c.integer("axis", 0), x.rank(), "scatter_elements");
  // Along the whole of the other axes they are those of an operator, but for indices that are known
  // while x is not: those may be a slice of it.
  const bool is_all_known = !is_traced(x) && !is_traced(c[2]);
  if ((is_traced(c[1]) || is_all_known) && combination(c) == nullptr && c[1].rank() == x.rank()) {
    Shape line = x.shape();
    line[axis] = c[1].shape(axis);
    if (c[1].shape() == line && c[2].shape() == line)
      return {put_along_axis(x, c[1].to(i64), c[2], axis)};
  }
  const Tensor indices = c.host(1);
  if (indices.rank() != x.rank() || !(indices.shape() == c[2].shape()))
    fail("scatter_elements", "got the shapes ", x.shape(), ", ", indices.shape(), " and ",
         c[2].shape());
  // Every index with those of its own place on the other axes.
  std::vector<Tensor> columns;
  for (int i = 0; i < x.rank(); ++i) {
    Shape counts = Shape::filled(x.rank(), 1);
    counts[i] = indices.shape(i);
    const Tensor column =
        i == axis ? indices.to(i64)
                  : broadcast_to(arange(indices.shape(i)).reshape(counts), indices.shape());
    columns.push_back(column);
  }
  const Ints places = positions(stack(columns, -1), x.shape(), 0).to_vector<std::int64_t>();
  return {scattered(x, c[2], places, x.rank(), combination(c))};
}

Results one_hot(const Call& c) {
  const std::int64_t depth = c.host(1).item<std::int64_t>();
  const int axis = normalize_axis(c.integer("axis", -1), c[0].rank() + 1, "one_hot");
  if (depth < 0) fail("one_hot", "got a depth of ", depth);
  const Tensor indices = c[0].to(i64);
  Shape classes = Shape::filled(c[0].rank() + 1, 1);
  classes[axis] = depth;
  const Tensor place = where(indices < 0, indices + depth, indices).expand_dims(axis);
  const auto value = [&](std::int64_t i) { return sliced(c[2], 0, i, 1).reshape({}); };
  return {where(place == arange(depth).reshape(classes).to(indices.device()), value(1), value(0))};
}

// The positions of what is not zero, one column each: [rank, count].
Results non_zero(const Call& c) {
  const Tensor x = c.host(0);
  return {x.rank() == 0 ? zeros({0, 0}, i64) : stack(nonzero(x))};
}

Results compress(const Call& c) {
  const std::vector<bool> flags = c.host(1).to_vector<bool>();
  Ints places;
  for (std::size_t i = 0; i < flags.size(); ++i)
    if (flags[i]) places.push_back(static_cast<std::int64_t>(i));
  const bool is_flat = !c.has("axis");
  const Tensor x = is_flat ? c[0].reshape({-1}) : c[0];
  const int axis = is_flat ? 0 : normalize_axis(c.integer("axis", 0), x.rank(), "compress");
  return {take(x, array(places).to(x.device()), axis)};
}

// The first lengths[b] elements of every line b of the batch the other way round.
Results reverse_sequence(const Call& c) {
  const Tensor& x = c[0];
  const auto time = c.integer("time_axis", 0), batch = c.integer("batch_axis", 1);
  const Ints lengths = c.ints(1);
  if (time == batch || std::min(time, batch) < 0 || std::max(time, batch) > 1 || x.rank() < 2 ||
      static_cast<std::int64_t>(lengths.size()) != x.shape(static_cast<int>(batch)))
    fail("reverse_sequence", "got the shape ", x.shape(), ", ", lengths.size(),
         " lengths, time_axis=", time, " and batch_axis=", batch);
  const std::int64_t steps = x.shape(static_cast<int>(time));
  Ints places;  // [batch, time]
  for (const std::int64_t length : lengths)
    for (std::int64_t t = 0; t < steps; ++t) places.push_back(t < length ? length - 1 - t : t);
  Tensor indices = array(places, {static_cast<std::int64_t>(lengths.size()), steps});
  if (time == 0) indices = indices.transpose();
  for (int axis = 2; axis < x.rank(); ++axis) indices = indices.expand_dims(-1);
  return {take_along_axis(x, indices.to(x.device()), static_cast<int>(time))};
}

std::string refuse_reduction(const Node& n) {
  return refuse_unless(n, "reduction", {"none", "add", "mul", "max", "min"});
}

constexpr Operator kGatherRows[] = {
    {"Gather", 1, 2, 2, 1, "axis:i", gather_of},
    {"GatherElements", 11, 2, 2, 1, "axis:i", gather_elements},
    {"GatherND", 11, 2, 2, 1, "batch_dims:i", gather_nd},
    {"ScatterND", 11, 3, 3, 1, "reduction:s", scatter_nd, refuse_reduction},
    {"ScatterElements", 11, 3, 3, 1, "axis:i reduction:s", scatter_elements, refuse_reduction},
    {"Scatter", 9, 3, 3, 1, "axis:i", scatter_elements},
    {"OneHot", 9, 3, 3, 1, "axis:i", one_hot},
    {"NonZero", 9, 1, 1, 1, "", non_zero},
    {"Compress", 9, 2, 2, 1, "axis:i", compress},
    {"ReverseSequence", 10, 2, 2, 1, "time_axis:i batch_axis:i", reverse_sequence},
};

}  // namespace

std::span<const Operator> gather_operators() { return kGatherRows; }

}  // namespace tensor::onnx

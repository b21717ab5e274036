// Indexing x(...) as NumPy does it. Integers, slices, newaxis and ellipsis are views; a boolean
// mask or an integer tensor gathers (NumPy's "advanced" indexing): its positions are broadcast
// against each other, and their axes stand where the first of them stood if they are neighbours, in
// front otherwise.
#include "tensor/index.h"

#include <charconv>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/on_device.h"
#include "src/ops/promote.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

struct SliceRange {
  std::int64_t start, extent, step;
};

// Python's slice.indices.
SliceRange resolve(const Slice& slice, std::int64_t extent) {
  if (slice.step == 0)
    fail("index", "got a slice with a step of 0, need a positive or negative one");
  const std::int64_t low = slice.step > 0 ? 0 : -1, high = slice.step > 0 ? extent : extent - 1;
  const auto clamp = [&](std::int64_t bound) {
    return std::clamp(bound < 0 ? bound + extent : bound, low, high);
  };
  const std::int64_t start = slice.start ? clamp(*slice.start) : (slice.step > 0 ? low : high);
  const std::int64_t stop = slice.stop ? clamp(*slice.stop) : (slice.step > 0 ? high : low);
  const std::int64_t span = slice.step > 0 ? stop - start : start - stop;
  // Not (span + step - 1) / step: a step near 2^63 would overflow.
  const std::uint64_t stride = slice.step > 0 ? static_cast<std::uint64_t>(slice.step)
                                              : 0 - static_cast<std::uint64_t>(slice.step);
  const std::int64_t count =
      span <= 0 ? 0
                : static_cast<std::int64_t>((static_cast<std::uint64_t>(span) - 1) / stride) + 1;
  return {start, count, count > 1 ? slice.step : (slice.step > 0 ? 1 : -1)};
}

constexpr std::string_view kTakeInstead =
    "positions in a tensor are not traced as an index: use take() or take_along_axis()";

// How many axes of x an item takes.
int consumed(const Index& item) {
  return std::visit(
      []<class V>(const V& value) {
        if constexpr (std::is_same_v<V, NewAxis> || std::is_same_v<V, Ellipsis>)
          return 0;
        else if constexpr (std::is_same_v<V, Tensor>)
          return value.dtype() == boolean ? value.rank() : 1;
        else
          return 1;
      },
      item.get());
}

// The items with the ellipsis written out behind its mark and masks turned into positions: one item
// an axis, plus new axes.
std::vector<Index> expand(const Tensor& x, const std::vector<Index>& indices) {
  int used = 0, ellipses = 0;
  for (const Index& item : indices) {
    used += consumed(item);
    ellipses += std::holds_alternative<Ellipsis>(item.get());
  }
  if (ellipses > 1) fail("index", "got ", ellipses, " ellipses, need at most one");
  if (used > x.rank())
    fail("index", "got indices for ", used, " axes, but the shape ", x.shape(), " has ", x.rank());
  std::vector<Index> result;
  int axis = 0;
  const auto fill = [&] {
    for (int i = used; i < x.rank(); ++i, ++axis) result.push_back(all_of_axis);
  };
  for (const Index& item : indices) {
    const auto* positions = std::get_if<Tensor>(&item.get());
    if (std::holds_alternative<Ellipsis>(item.get())) {
      result.push_back(
          item);  // kept: NumPy takes positions on its two sides as apart, even when it is no axis
      fill();
    } else if (positions && positions->dtype() == boolean) {
      for (int i = 0; i < positions->rank(); ++i)
        if (positions->shape(i) != x.shape(axis + i))
          fail("index", "the mask has the shape ", positions->shape(),
               ", which does not fit the shape ", x.shape(), " from axis ", axis);
      if (positions->rank() == 0) fail("index", "a 0-d mask is not supported: use where()");
      detail::require_values(*positions, "index",
                             "how many elements a boolean mask picks depends on them: use where()");
      for (Tensor& along : nonzero(*positions)) result.emplace_back(std::move(along));
      axis += positions->rank();
    } else {
      if (positions && kind_of(positions->dtype()) != Kind::integer)
        fail("index", "got positions of ", positions->dtype(), ", need integers or a bool mask");
      result.push_back(item);
      axis += consumed(item);
    }
  }
  if (ellipses == 0) fill();
  return result;
}

struct Gather {
  Tensor base;  // the view left by slices and new axes; gathered axes are still whole
  Dims axes;    // of base, one for each of `positions`
  std::vector<Tensor> positions;  // i64
  int result_axis = 0;            // where the positions' axes stand in the result
};

// Splits an expanded index into its view and its gathered axes. With no tensor among the items the
// integers are part of the view, otherwise they are positions like the tensors.
Gather analyse(const Tensor& x, const std::vector<Index>& items) {
  bool gathers = false;
  for (const Index& item : items) gathers |= std::holds_alternative<Tensor>(item.get());
  Dims start = Dims::filled(x.rank(), 0), extent = x.shape(), step = Dims::filled(x.rank(), 1);
  Shape viewed;
  Gather gather;
  int axis = 0, last = -1;
  bool neighbours = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i].get();
    const auto add_positions = [&](Tensor positions) {
      if (gather.axes.empty()) gather.result_axis = viewed.rank();
      neighbours = neighbours && (last < 0 || static_cast<std::size_t>(last) + 1 == i);
      last = static_cast<int>(i);
      gather.axes.push_back(viewed.rank());
      gather.positions.push_back(std::move(positions));
      viewed.push_back(x.shape(axis));
    };
    if (std::holds_alternative<Ellipsis>(item)) continue;
    if (std::holds_alternative<NewAxis>(item)) {
      viewed.push_back(1);
      continue;
    }
    if (const auto* slice = std::get_if<Slice>(&item)) {
      const SliceRange range = resolve(*slice, x.shape(axis));
      start[axis] = range.start, extent[axis] = range.extent, step[axis] = range.step;
      viewed.push_back(range.extent);
    } else if (const auto* position = std::get_if<std::int64_t>(&item)) {
      if (*position < -x.shape(axis) || *position >= x.shape(axis))
        fail("index", "index ", *position, " is out of bounds for axis ", axis, " of the shape ",
             x.shape());
      if (gathers) {
        add_positions(full({}, *position, i64));
      } else {
        start[axis] = *position < 0 ? *position + x.shape(axis) : *position;
        extent[axis] = 1;  // the axis itself is left out of `viewed`
      }
    } else {
      const Tensor& positions = std::get<Tensor>(item);
      detail::require_values(positions, "index", kTakeInstead);
      add_positions(cast(positions.to(Device()), i64));
    }
    ++axis;
  }
  if (!neighbours) gather.result_axis = 0;
  gather.base = slice_axes(x, start, extent, step).reshape(viewed);
  return gather;
}

// The element offsets into base of every combination of positions, and the positions' common shape.
std::pair<std::vector<std::int64_t>, Shape> offsets_of(const Gather& gather) {
  detail::require_values(gather.base, "index", kTakeInstead);
  Shape shape;
  for (const Tensor& positions : gather.positions)
    shape = broadcast_shapes(shape, positions.shape(), "index");
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(num_elements(shape)), 0);
  for (int i = 0; i < gather.axes.rank(); ++i) {
    const int axis = static_cast<int>(gather.axes[i]);
    const std::int64_t extent = gather.base.shape(axis), stride = gather.base.strides()[axis];
    std::size_t k = 0;
    const Tensor wide = broadcast_to(gather.positions[static_cast<std::size_t>(i)], shape);
    for (const std::int64_t position : wide.elements<std::int64_t>()) {
      if (position < -extent || position >= extent)
        fail("index", "position ", position, " is out of bounds for an axis of extent ", extent);
      offsets[k++] += (position < 0 ? position + extent : position) * stride;
    }
  }
  return {std::move(offsets), shape};
}

// The axes of base that are not gathered.
std::pair<Shape, Strides> remaining(const Gather& gather) {
  Shape shape;
  Strides strides;
  for (int axis = 0; axis < gather.base.rank(); ++axis) {
    if (gather.axes.contains(axis)) continue;
    shape.push_back(gather.base.shape(axis));
    strides.push_back(gather.base.strides()[axis]);
  }
  return {shape, strides};
}

// The order of axes that brings [positions..., rest...] to the result's order.
Dims result_order(int position_rank, int rest_rank, int result_axis) {
  Dims axes;
  for (int i = 0; i < result_axis; ++i) axes.push_back(position_rank + i);
  for (int i = 0; i < position_rank; ++i) axes.push_back(i);
  for (int i = result_axis; i < rest_rank; ++i) axes.push_back(position_rank + i);
  return axes;
}

// Copies between the gathered elements of base and `packed`, whose axes are [positions...,
// rest...].
void transfer(const Gather& gather, const std::vector<std::int64_t>& offsets, int position_rank,
              const Tensor& packed, bool into_base) {
  const auto [rest, base_strides] = remaining(gather);
  const View base = mutable_view(gather.base), side = mutable_view(packed);
  Shape positions;
  Strides position_strides, rest_strides;
  for (int axis = 0; axis < packed.rank(); ++axis) {
    (axis < position_rank ? position_strides : rest_strides).push_back(packed.strides()[axis]);
    if (axis < position_rank) positions.push_back(packed.shape(axis));
  }
  // clang before 16 cannot capture structured bindings without an initialiser.
  dispatch(base.dtype, [&, rest = rest, base_strides = base_strides]<class Tag>(Tag) {
    using T = typename Tag::type;
    std::size_t k = 0;
    for_each_index(
        positions,
        [&](std::int64_t at) {
          T* inside = base.as<T>() + offsets[k++];
          T* outside = side.as<T>() + at;
          for_each_index(
              rest,
              [&](std::int64_t i, std::int64_t o) {
                into_base ? void(inside[i] = outside[o]) : void(outside[o] = inside[i]);
              },
              base_strides, rest_strides);
        },
        position_strides);
  });
}

// The value as it is written to that shape; leading axes of extent 1 that are too many go.
Tensor stretched(const Tensor& value, const Shape& shape) {
  Shape fitting = value.shape();
  while (fitting.rank() > shape.rank() && fitting[0] == 1) fitting.erase(0);
  if (!(broadcast_shapes(fitting, shape, "assignment") == shape))
    fail("assignment", "cannot stretch the shape ", value.shape(), " to ", shape,
         ": only axes of extent 1 stretch");
  return broadcast_to(reshape(value, fitting), shape);
}

void assign_view(const Tensor& target, const Tensor& value) {
  if (target.is_read_only())
    fail("assignment",
         "the target is read-only (a mapped file or a broadcast): write into a copy()");
  const Device device = target.device();
  Tensor source = cast(stretched(value.to(device), target.shape()), target.dtype());
  if (source.shares_storage(target)) source = copy(source);
  if (device.is_cuda()) return copy_on_device(source, target);
  const View out = mutable_view(target);
  const ConstView in = const_view(source);
  dispatch(out.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for_each_index(
        out.shape, [&](std::int64_t to, std::int64_t from) { out.as<T>()[to] = in.as<T>()[from]; },
        out.strides, in.strides);
  });
}

}  // namespace

Tensor get_index(const Tensor& x, const std::vector<Index>& indices) {
  const std::vector<Index> items = expand(x, indices);
  Gather gather = analyse(x, items);
  if (gather.positions.empty()) return gather.base;
  gather.base = gather.base.to(Device());
  const auto [offsets, shape] = offsets_of(gather);
  const Tensor packed = empty(joined(shape, remaining(gather).first), x.dtype());
  transfer(gather, offsets, shape.rank(), packed, false);
  return transpose(packed.to(x.device()),
                   result_order(shape.rank(), packed.rank() - shape.rank(), gather.result_axis));
}

namespace {
constexpr std::string_view kMakeInstead =
    "make a new one with where(), concatenate() or pad(), or declare the target as Tensor, which "
    "+= and = rebind";
}

void set_index(const Tensor& x, const std::vector<Index>& indices, const Tensor& value) {
  if (detail::impl(x).recorder)
    fail("assignment", "a traced tensor (", x.type(), ") has no elements to write into before the ",
         "compiled function runs: ", kMakeInstead);
  detail::require_values(value, "assignment", kMakeInstead);
  if (x.is_read_only())
    fail("assignment",
         "the target is read-only (a mapped file or a broadcast): write into a copy()");
  check_fits(value, x.dtype(), "assignment", "convert the target with astype first");
  const std::vector<Index> items = expand(x, indices);
  Gather gather = analyse(x, items);
  detail::about_to_write(*detail::impl(x).storage);
  if (gather.positions.empty()) return assign_view(gather.base, value);
  const Tensor base = gather.base;
  gather.base = base.to(Device());
  const auto [offsets, shape] = offsets_of(gather);
  // A contiguous buffer of the result's layout, filled from the value, then read back in the packed
  // order.
  Tensor packed = empty(joined(shape, remaining(gather).first), x.dtype());
  assign_view(transpose(packed, result_order(shape.rank(), packed.rank() - shape.rank(),
                                             gather.result_axis)),
              value);
  transfer(gather, offsets, shape.rank(), packed, true);
  if (base.device().is_cuda()) assign_view(base, gather.base);
}

namespace {

// What was computed in place of the target's elements. NumPy's rule "same_kind": range and
// precision may be lost, but no fractions and no signs.
Tensor in_place(const Tensor& result, const Tensor& target) {
  const DType from = result.dtype(), dtype = target.dtype();
  const bool unsign = dtype == u8 && kind_of(from) == Kind::integer && from != u8;
  if (kind_of(from) > kind_of(dtype) || unsign)
    fail("assignment", "the result is ", from, ", which ", dtype,
         " cannot hold: convert the target with astype(", from,
         ") first, or the result with astype(", dtype, ")");
  return result;
}

}  // namespace

void IndexedTensor::operator=(const IndexedTensor& value) && { set_index(base_, indices_, value); }
void IndexedTensor::operator=(const Tensor& value) && { set_index(base_, indices_, value); }
void IndexedTensor::operator+=(const Tensor& value) && {
  set_index(base_, indices_, in_place(add(*this, value), *this));
}
void IndexedTensor::operator-=(const Tensor& value) && {
  set_index(base_, indices_, in_place(subtract(*this, value), *this));
}
void IndexedTensor::operator*=(const Tensor& value) && {
  set_index(base_, indices_, in_place(multiply(*this, value), *this));
}
void IndexedTensor::operator/=(const Tensor& value) && {
  set_index(base_, indices_, in_place(divide(*this, value), *this));
}

void IndexedTensor::operator=(const IndexedTensor& value) & { set_index(*this, {ellipsis}, value); }
void IndexedTensor::operator=(const Tensor& value) & { set_index(*this, {ellipsis}, value); }
void IndexedTensor::operator+=(const Tensor& value) & {
  set_index(*this, {ellipsis}, in_place(add(*this, value), *this));
}
void IndexedTensor::operator-=(const Tensor& value) & {
  set_index(*this, {ellipsis}, in_place(subtract(*this, value), *this));
}
void IndexedTensor::operator*=(const Tensor& value) & {
  set_index(*this, {ellipsis}, in_place(multiply(*this, value), *this));
}
void IndexedTensor::operator/=(const Tensor& value) & {
  set_index(*this, {ellipsis}, in_place(divide(*this, value), *this));
}

IndexedTensor RowIterator::operator*() const { return tensor_(row_); }

// ---- Index text.

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> parse_bound(std::string_view part, std::string_view whole) {
  part = trimmed(part);
  if (part.empty() || part == "None") return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc() || end != part.data() + part.size())
    fail("index", "cannot read \"", part, "\" in \"", whole, "\": need integers, a:b:c, ..., None");
  return value;
}

Index parse_item(std::string_view item, std::string_view whole) {
  if (item == "...") return ellipsis;
  if (item == "None" || item == "newaxis") return newaxis;
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= item.size();) {
    const std::size_t colon = std::min(item.find(':', begin), item.size());
    parts.push_back(item.substr(begin, colon - begin));
    begin = colon + 1;
  }
  if (parts.size() > 3) fail("index", "\"", item, "\" in \"", whole, "\" has more than two colons");
  const auto first = parse_bound(parts[0], whole);
  if (parts.size() == 1) {
    if (!first) fail("index", "an empty item in \"", whole, "\"");
    return *first;
  }
  Slice slice{first, parse_bound(parts[1], whole)};
  if (parts.size() == 3) slice.step = parse_bound(parts[2], whole).value_or(1);
  return slice;
}

}  // namespace

std::vector<Index> parse_index(std::string_view text) {
  std::vector<Index> result;
  std::string_view rest = trimmed(text);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    result.push_back(parse_item(trimmed(rest.substr(0, comma)), text));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    rest = trimmed(rest);
  }
  if (result.empty()) fail("index", "got an empty index text");
  return result;
}

}  // namespace tensor

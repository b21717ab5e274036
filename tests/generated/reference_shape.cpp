// References of the operators that move elements: where each element of the result comes from.
#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>

#include "tests/generated/reference.h"

namespace tensor::generated {
namespace {

// A result of this shape from a function of the index.
template <class F>
Expected from_index(const Shape& shape, DType dtype, F value_at) {
  Expected result(shape, dtype);
  for (std::size_t i = 0; i < result.size(); ++i) result.values[i] = value_at(unravel(i, shape));
  return result;
}

std::size_t place(int axis) { return static_cast<std::size_t>(axis); }

// ---- Python's indexing.

// The positions that start:stop:step visits, as Python's reference manual says it (section 5.6,
// footnotes 4 and 5).
Index visited(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
              std::int64_t step, std::int64_t extent) {
  const auto from_end = [&](std::int64_t i) { return i < 0 ? i + extent : i; };
  const std::int64_t first = step > 0 ? 0 : -1, last = step > 0 ? extent : extent - 1;
  std::int64_t at = start ? std::clamp(from_end(*start), first, last) : (step > 0 ? first : last);
  const std::int64_t end =
      stop ? std::clamp(from_end(*stop), first, last) : (step > 0 ? last : first);
  Index positions;
  for (; step > 0 ? at < end : at > end; at += step) positions.push_back(at);
  return positions;
}

std::vector<std::string> pieces(const std::string& text, char separator) {
  std::vector<std::string> result(1);
  for (const char letter : text) {
    if (letter == separator)
      result.emplace_back();
    else
      result.back() += letter;
  }
  return result;
}

std::optional<std::int64_t> number(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(std::stoll(text));
}

Results slice(const Arrays& in, const Attrs& attrs) {
  const Array& x = in[0];
  std::vector<std::string> items = pieces(attrs.text("index"), ',');
  const auto used = std::count_if(items.begin(), items.end(),
                                  [](const auto& i) { return i != "None" && i != "..."; });
  const auto dots = std::find(items.begin(), items.end(), "...");
  const auto at = dots == items.end() ? items.end() : items.erase(dots);
  items.insert(at, static_cast<std::size_t>(x.rank() - used), ":");
  // For each axis of x the positions it visits; for each axis of the result the axis of x, or -1
  // for a new one.
  std::vector<Index> positions;
  std::vector<int> source;
  Shape shape;
  for (const std::string& item : items) {
    if (item == "None") {
      source.push_back(-1);
      shape.push_back(1);
      continue;
    }
    const std::int64_t extent = x.shape[static_cast<int>(positions.size())];
    const auto parts = pieces(item, ':');
    if (parts.size() == 1) {
      const std::int64_t i = std::stoll(item);
      positions.push_back({i < 0 ? i + extent : i});
      continue;
    }
    source.push_back(static_cast<int>(positions.size()));
    positions.push_back(visited(number(parts[0]), number(parts[1]),
                                parts.size() > 2 ? std::stoll(parts[2]) : 1, extent));
    shape.push_back(static_cast<std::int64_t>(positions.back().size()));
  }
  return {from_index(shape, x.dtype, [&](const Index& out) {
    Index index;
    for (const Index& visits : positions) index.push_back(visits.empty() ? 0 : visits[0]);
    for (std::size_t k = 0; k < source.size(); ++k)
      if (source[k] >= 0)
        index[place(source[k])] = positions[place(source[k])][place(static_cast<int>(out[k]))];
    return x.at(index);
  })};
}

// ---- Views.

Results reshape(const Arrays& in, const Attrs& attrs) {
  Expected result(in[0].shape, in[0].dtype);
  result.values = in[0].values;
  Shape shape = attrs.dims("shape");
  std::int64_t known = 1;
  for (const auto extent : shape) known *= extent == -1 ? 1 : extent;
  for (auto& extent : shape)
    if (extent == -1) extent = static_cast<std::int64_t>(result.size()) / known;
  result.shape = shape;
  return {result};
}

Results permute(const Array& x, const Ints& axes) {
  Shape shape;
  for (const auto axis : axes) shape.push_back(x.shape[static_cast<int>(axis)]);
  return {from_index(shape, x.dtype, [&](const Index& out) {
    Index index(out.size());
    for (std::size_t k = 0; k < axes.size(); ++k) index[place(static_cast<int>(axes[k]))] = out[k];
    return x.at(index);
  })};
}

Ints all_axes(int rank) {
  Ints axes;
  for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

Results transpose(const Arrays& in, const Attrs& attrs) {
  Ints axes = all_axes(in[0].rank());
  std::reverse(axes.begin(), axes.end());
  return permute(in[0], attrs.ints("axes", axes));
}

Results swapaxes(const Arrays& in, const Attrs& attrs) {
  Ints axes = all_axes(in[0].rank());
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>((attrs.integer(name) + in[0].rank()) % in[0].rank());
  };
  std::swap(axes[at("axis1")], axes[at("axis2")]);
  return permute(in[0], axes);
}

Results with_shape(const Array& x, const Shape& shape) {
  Expected result(shape, x.dtype);
  result.values = x.values;
  return {result};
}

Results expand_dims(const Arrays& in, const Attrs& attrs) {
  Shape shape = in[0].shape;
  shape.insert(axis_of(attrs, in[0].rank() + 1, 0), 1);
  return with_shape(in[0], shape);
}

Results squeeze(const Arrays& in, const Attrs& attrs) {
  Shape shape;
  const auto axes = axes_of(attrs, in[0].rank());
  for (int axis = 0; axis < in[0].rank(); ++axis)
    if (in[0].shape[axis] != 1 || !std::binary_search(axes.begin(), axes.end(), axis))
      shape.push_back(in[0].shape[axis]);
  return with_shape(in[0], shape);
}

Results broadcast_to(const Arrays& in, const Attrs& attrs) {
  return {from_index(attrs.dims("shape"), in[0].dtype,
                     [&](const Index& out) { return in[0].at(out); })};
}

Results flip(const Arrays& in, const Attrs& attrs) {
  const auto axes = axes_of(attrs, in[0].rank());
  return {from_index(in[0].shape, in[0].dtype, [&](Index out) {
    for (const int axis : axes) out[place(axis)] = in[0].shape[axis] - 1 - out[place(axis)];
    return in[0].at(out);
  })};
}

// ---- Copies.

Results tile(const Arrays& in, const Attrs& attrs) {
  Shape from = in[0].shape, reps = attrs.dims("reps");
  while (from.rank() < reps.rank()) from.insert(0, 1);
  while (reps.rank() < from.rank()) reps.insert(0, 1);
  Shape shape = from;
  for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] *= reps[axis];
  return {from_index(shape, in[0].dtype, [&](Index out) {
    for (int axis = 0; axis < from.rank(); ++axis) out[place(axis)] %= from[axis];
    return in[0].values[ravel(out, from)];
  })};
}

Results repeat(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  const std::int64_t times = attrs.integer("repeats");
  Shape shape = in[0].shape;
  shape[axis] *= times;
  return {from_index(shape, in[0].dtype, [&](Index out) {
    out[place(axis)] /= times;
    return in[0].at(out);
  })};
}

Results triangle(const Arrays& in, const Attrs& attrs, bool lower) {
  const std::int64_t k = attrs.integer("k", 0);
  return {from_index(in[0].shape, in[0].dtype, [&](const Index& out) {
    const std::int64_t off = out.back() - out[out.size() - 2];
    return (lower ? off <= k : off >= k) ? in[0].at(out) : Exact(0);
  })};
}

Results pad(const Arrays& in, const Attrs& attrs) {
  const Ints width = attrs.ints("pad_width");
  const Exact fill = round_to(in[0].dtype, attrs.number("constant_values", 0));
  Shape shape = in[0].shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    shape[axis] += width[2 * place(axis)] + width[2 * place(axis) + 1];
  return {from_index(shape, in[0].dtype, [&](Index out) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      out[place(axis)] -= width[2 * place(axis)];
      if (out[place(axis)] < 0 || out[place(axis)] >= in[0].shape[axis]) return fill;
    }
    return in[0].at(out);
  })};
}

Results concatenate(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  Shape shape = in[0].shape;
  for (std::size_t k = 1; k < in.size(); ++k) shape[axis] += in[k].shape[axis];
  return {from_index(shape, in[0].dtype, [&](Index out) {
    std::size_t k = 0;
    for (; out[place(axis)] >= in[k].shape[axis]; ++k) out[place(axis)] -= in[k].shape[axis];
    return in[k].values[ravel(out, in[k].shape)];
  })};
}

Results stack(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank() + 1, 0);
  Shape shape = in[0].shape;
  shape.insert(axis, static_cast<std::int64_t>(in.size()));
  return {from_index(shape, in[0].dtype, [&](Index out) {
    const auto k = static_cast<std::size_t>(out[place(axis)]);
    out.erase(out.begin() + axis);
    return in[k].at(out);
  })};
}

Results split(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  const std::int64_t extent = in[0].shape[axis];
  Ints at;
  if (attrs.has("sections"))
    for (std::int64_t k = 1; k < attrs.integer("sections"); ++k)
      at.push_back(k * extent / attrs.integer("sections"));
  else
    at = attrs.ints("indices");
  at.push_back(extent);
  Results results;
  std::int64_t begin = 0;
  for (std::int64_t end : at) {
    end = std::min(end, extent);
    Shape shape = in[0].shape;
    shape[axis] = std::max<std::int64_t>(0, end - begin);
    results.push_back(from_index(shape, in[0].dtype, [&](Index out) {
      out[place(axis)] += begin;
      return in[0].values[ravel(out, in[0].shape)];
    }));
    begin = end;
  }
  return results;
}

std::int64_t from_end(Exact position, std::int64_t extent) {
  return static_cast<std::int64_t>(position) + (position < 0 ? extent : 0);
}

Results take(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  Shape shape;
  for (int k = 0; k < axis; ++k) shape.push_back(in[0].shape[k]);
  for (const auto extent : in[1].shape) shape.push_back(extent);
  for (int k = axis + 1; k < in[0].rank(); ++k) shape.push_back(in[0].shape[k]);
  return {from_index(shape, in[0].dtype, [&](const Index& out) {
    const auto middle = out.begin() + axis, behind = middle + in[1].rank();
    Index index(out.begin(), middle);
    index.push_back(from_end(in[1].at(Index(middle, behind)), in[0].shape[axis]));
    index.insert(index.end(), behind, out.end());
    return in[0].values[ravel(index, in[0].shape)];
  })};
}

Results take_along_axis(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  return {from_index(in[1].shape, in[0].dtype, [&](Index out) {
    out[place(axis)] = from_end(in[1].at(out), in[0].shape[axis]);
    return in[0].values[ravel(out, in[0].shape)];
  })};
}

Results put_along_axis(const Arrays& in, const Attrs& attrs) {
  const int axis = axis_of(attrs, in[0].rank(), 0);
  Expected result(in[0].shape, in[0].dtype);
  result.values = in[0].values;
  for (std::size_t i = 0; i < in[1].size(); ++i) {
    const Index from = unravel(i, in[1].shape);
    Index to = from;
    to[place(axis)] = from_end(in[1].values[i], in[0].shape[axis]);
    result.values[ravel(to, result.shape)] = in[2].at(from);
  }
  return {result};
}

}  // namespace

void add_shape_references(References& table) {
  table["slice"] = slice;
  table["reshape"] = reshape;
  table["transpose"] = transpose;
  table["swapaxes"] = swapaxes;
  table["expand_dims"] = expand_dims;
  table["squeeze"] = squeeze;
  table["broadcast_to"] = broadcast_to;
  table["flip"] = flip;
  table["tile"] = tile;
  table["repeat"] = repeat;
  table["tril"] = [](const Arrays& in, const Attrs& attrs) { return triangle(in, attrs, true); };
  table["triu"] = [](const Arrays& in, const Attrs& attrs) { return triangle(in, attrs, false); };
  table["pad"] = pad;
  table["concatenate"] = concatenate;
  table["stack"] = stack;
  table["split"] = split;
  table["take"] = take;
  table["take_along_axis"] = take_along_axis;
  table["put_along_axis"] = put_along_axis;
}

}  // namespace tensor::generated

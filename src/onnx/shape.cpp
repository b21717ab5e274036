// Operators on shapes: what makes, cuts and joins tensors without computing with their elements.
#include <algorithm>
#include <cmath>

#include "src/onnx/elements.h"
#include "src/onnx/operators.h"

namespace tensor::onnx {
namespace {

Tensor numbers(const Ints& list) { return array(list); }
Ints list_of(const Shape& shape) { return Ints(shape.begin(), shape.end()); }

// Axes, steps and such are inputs in newer opsets, attributes in older ones.
Ints ints_of(const Call& c, int input, std::string_view attribute) {
  return c.has(input) ? c.ints(input) : c.ints(attribute);
}

Results shape_of(const Call& c) {
  const Ints shape = list_of(c[0].shape());
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::string_view name, std::int64_t fallback) {
    const std::int64_t at = c.integer(name, fallback);
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t start = place("start", 0), end = std::max(start, place("end", rank));
  return {numbers(Ints(shape.begin() + start, shape.begin() + end))};
}

Results size_of(const Call& c) { return {full({}, c[0].size(), i64)}; }

Results reshape_of(const Call& c) {
  Ints shape = ints_of(c, 1, "shape");
  if (c.integer("allowzero", 0) == 0)
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (shape[i] == 0) {
        if (static_cast<int>(i) >= c[0].rank())
          fail("reshape", "got the shape ", Shape(shape), ", whose 0 has no axis of ",
               c[0].shape());
        shape[i] = c[0].shape(static_cast<int>(i));
      }
  return {c[0].reshape(Shape(shape))};
}

Results flatten_of(const Call& c) {
  const int rank = c[0].rank();
  std::int64_t axis = c.integer("axis", 1), rows = 1, columns = 1;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) fail("flatten", "got the axis ", axis, ", need 0 to ", rank);
  for (int i = 0; i < rank; ++i) (i < axis ? rows : columns) *= c[0].shape(i);
  return {c[0].reshape({rows, columns})};
}

Results squeeze_of(const Call& c) {
  if (!c.has(1) && !c.has("axes")) return {squeeze(c[0])};
  return {squeeze(c[0], Axes(Dims(ints_of(c, 1, "axes"))))};
}

Results unsqueeze_of(const Call& c) {
  const Ints axes = ints_of(c, 1, "axes");
  const int rank = c[0].rank() + static_cast<int>(axes.size());
  const Dims sorted = Axes(Dims(axes)).resolve(rank, "unsqueeze");
  Shape shape = c[0].shape();
  for (const std::int64_t axis : sorted) shape.insert(static_cast<int>(axis), 1);
  return {c[0].reshape(shape)};
}

Results expand_of(const Call& c) {
  return {broadcast_to(c[0], broadcast_shapes(c[0].shape(), Shape(c.ints(1)), "expand"))};
}

Results tile_of(const Call& c) {
  const Ints repeats = c.ints(1);
  if (static_cast<int>(repeats.size()) != c[0].rank())
    fail("tile", "got ", repeats.size(), " repeats for the shape ", c[0].shape());
  return {tile(c[0], Dims(repeats))};
}

Results transpose_of(const Call& c) {
  if (!c.has("perm")) return {c[0].transpose()};
  return {c[0].transpose(Dims(c.ints("perm")))};
}

Results concat_of(const Call& c) {
  if (c.opset() >= 4) c.attribute("axis");
  std::vector<Tensor> parts;
  for (int i = 0; i < c.count(); ++i) parts.push_back(c[i]);
  return {concatenate(parts, static_cast<int>(c.integer("axis", 1)))};
}

Results split_of(const Call& c) {
  const int axis = normalize_axis(c.integer("axis", 0), c[0].rank(), "split");
  const std::int64_t extent = c[0].shape(axis);
  Ints sizes = ints_of(c, 1, "split");
  if (sizes.empty()) {
    // Equal parts, the last one smaller if need be.
    const auto parts = c.integer("num_outputs", static_cast<std::int64_t>(c.outputs()));
    if (parts < 1 || parts > std::max<std::int64_t>(extent, 1))
      fail("split", "got ", parts, " parts of an extent of ", extent);
    const std::int64_t each = (extent + parts - 1) / parts;
    sizes.assign(static_cast<std::size_t>(parts), each);
    sizes.back() = std::max<std::int64_t>(extent - each * (parts - 1), 0);
  }
  Results parts;
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    if (size < 0 || size > extent - at)
      fail("split", "got the sizes ", AttrValue(sizes), " of ", extent);
    parts.push_back(sliced(c[0], axis, at, size));
    at += size;
  }
  if (at != extent)
    fail("split", "got the sizes ", AttrValue(sizes), ", whose sum is not ", extent);
  return parts;
}

Results slice_of(const Call& c) {
  const Ints starts = ints_of(c, 1, "starts"), ends = ints_of(c, 2, "ends");
  Ints axes = ints_of(c, 3, "axes");
  const Ints steps = c.has(4) ? c.ints(4) : Ints(starts.size(), 1);
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    fail("slice", "got ", starts.size(), " starts, ", ends.size(), " ends, ", axes.size(),
         " axes and ", steps.size(), " steps, need equally many");
  Tensor x = c[0];
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "slice");
    const std::int64_t extent = x.shape(axis), step = steps[i];
    if (step == 0) fail("slice", "got a step of 0");
    const std::int64_t least = step > 0 ? 0 : -1, most = step > 0 ? extent : extent - 1;
    const auto place = [&](std::int64_t at) {
      return std::clamp(at < 0 ? at + extent : at, least, most);
    };
    const std::int64_t start = place(starts[i]), end = place(ends[i]);
    const std::int64_t way = step > 0 ? end - start : start - end;
    // As far as there are elements, a larger step is as good as the whole extent.
    const std::int64_t stride = std::clamp(step, -extent - 1, extent + 1), size = std::abs(stride);
    x = sliced(x, axis, std::clamp<std::int64_t>(start, 0, std::max<std::int64_t>(extent - 1, 0)),
               way > 0 ? (way + size - 1) / size : 0, stride);
  }
  return {x};
}

// Element i of the padded axis is element position(i) of the original one.
std::int64_t mirrored(std::int64_t at, std::int64_t extent, std::string_view mode) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, extent - 1);
  if (mode == "wrap") return ((at % extent) + extent) % extent;
  const std::int64_t period = std::max<std::int64_t>(2 * (extent - 1), 1);
  const std::int64_t place = ((at % period) + period) % period;
  return place < extent ? place : period - place;
}

Results pad_of(const Call& c) {
  Tensor x = c[0];
  const Ints pads = c.has(1) ? c.ints(1) : c.ints("pads");
  Ints axes = c.has(3) ? c.ints(3) : Ints();
  if (!c.has(3))
    for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  const std::size_t count = axes.size();
  if (pads.size() != 2 * count)
    fail("pad", "got ", pads.size(), " pads for ", count, " axes, need two for each");
  const std::string mode = c.text("mode", "constant");
  std::vector<std::pair<std::int64_t, std::int64_t>> widths(static_cast<std::size_t>(x.rank()));
  for (std::size_t i = 0; i < count; ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "pad");
    const std::int64_t before = pads[i], after = pads[i + count], extent = x.shape(axis);
    // What is negative cuts off.
    const std::int64_t cut = std::max<std::int64_t>(-before, 0),
                       rest = extent - cut - std::max<std::int64_t>(-after, 0);
    if (rest < 0) fail("pad", "cuts off ", extent - rest, " of ", extent, " elements");
    x = sliced(x, axis, cut, rest);
    widths[static_cast<std::size_t>(axis)] = {std::max<std::int64_t>(before, 0),
                                              std::max<std::int64_t>(after, 0)};
  }
  if (mode == "constant") {
    const bool has_value = c.has(2) && c[2].size() > 0;
    const Tensor value = has_value ? c[2].reshape({}) : Tensor(c.number("value", 0));
    return {pad(x, widths, value)};
  }
  for (int axis = 0; axis < x.rank(); ++axis) {
    const auto [before, after] = widths[static_cast<std::size_t>(axis)];
    const std::int64_t extent = x.shape(axis);
    if (before == 0 && after == 0) continue;
    if (extent == 0) fail("pad", "mode ", mode, " needs elements along axis ", axis);
    Ints places;
    for (std::int64_t i = -before; i < extent + after; ++i)
      places.push_back(mirrored(i, extent, mode));
    x = take(x, numbers(places).to(x.device()), axis);
  }
  return {x};
}

// ---- Makers

Results constant_of(const Call& c) {
  for (const std::string_view name : {"value", "value_int", "value_float", "value_ints"})
    if (c.has(name)) {
      const Attribute& a = c.attribute(name);
      if (name == "value") return {a.tensor};
      if (name == "value_int") return {full({}, a.integer, i64)};
      if (name == "value_float") return {full({}, static_cast<double>(a.number), f32)};
      return {numbers(a.integers)};
    }
  return {array(c.attribute("value_floats").numbers)};
}

Results constant_of_shape(const Call& c) {
  const Tensor value = c.has("value") ? c.attribute("value").tensor.reshape({}) : zeros({}, f32);
  return {broadcast_to(value, Shape(c.ints(0)))};
}

Results range_of(const Call& c) {
  const DType dtype = c[0].dtype();
  if (!is_floating(dtype)) {
    const auto number = [&](int i) { return c.host(i).item<std::int64_t>(); };
    return {arange(number(0), number(1), number(2)).to(dtype)};
  }
  const double start = c.host(0).item(), step = c.host(2).item();
  if (!(step != 0)) fail("range", "got a step of 0");
  const double count = std::ceil((c.host(1).item() - start) / step);
  const Tensor steps = arange(static_cast<std::int64_t>(std::clamp(count, 0.0, 0x1p40)));
  return {(steps.to(f64) * step + start).to(dtype)};
}

Results eye_like(const Call& c) {
  if (c[0].rank() != 2) fail("eye_like", "got the shape ", c[0].shape(), ", need 2 axes");
  const std::int64_t type = c.integer("dtype", 0);
  const std::int64_t k = c.integer("k", 0);
  return {eye(c[0].shape(0), c[0].shape(1), k,
              type == 0 ? c[0].dtype() : dtype_of_onnx(type).value_or(f32))};
}

Results trilu(const Call& c) {
  const std::int64_t k = c.has(1) ? c.host(1).item<std::int64_t>() : 0;
  return {c.integer("upper", 1) != 0 ? triu(c[0], k) : tril(c[0], k)};
}

// ---- Blocks of channels

constexpr std::int64_t kLargestBlock = 1 << 15;

Results depth_to_space(const Call& c) {
  const std::int64_t b = c.attribute("blocksize").integer;
  const Shape& s = c[0].shape();
  if (s.rank() != 4 || b < 1 || b > kLargestBlock || s[1] % (b * b) != 0)
    fail("depth_to_space", "got the shape ", s, " and blocks of ", b);
  const std::int64_t depth = s[1] / (b * b);
  const Shape large{s[0], depth, s[2] * b, s[3] * b};
  if (c.text("mode", "DCR") == "CRD")
    return {
        c[0].reshape({s[0], depth, b, b, s[2], s[3]}).transpose({0, 1, 4, 2, 5, 3}).reshape(large)};
  return {
      c[0].reshape({s[0], b, b, depth, s[2], s[3]}).transpose({0, 3, 4, 1, 5, 2}).reshape(large)};
}

Results space_to_depth(const Call& c) {
  const std::int64_t b = c.attribute("blocksize").integer;
  const Shape& s = c[0].shape();
  if (s.rank() != 4 || b < 1 || b > kLargestBlock || s[2] % b != 0 || s[3] % b != 0)
    fail("space_to_depth", "got the shape ", s, " and blocks of ", b);
  return {c[0].reshape({s[0], s[1], s[2] / b, b, s[3] / b, b})
              .transpose({0, 3, 5, 1, 2, 4})
              .reshape({s[0], s[1] * b * b, s[2] / b, s[3] / b})};
}

std::string refuse_pad(const Node& n) {
  return refuse_unless(n, "mode", {"constant", "reflect", "edge", "wrap"});
}
std::string refuse_eye(const Node& n) {
  const Attribute* type = n.find("dtype");
  return !type || dtype_of_onnx(type->integer) ? "" : "dtype=" + type_name(type->integer);
}

constexpr Operator kShapeRows[] = {
    {"Shape", 1, 1, 1, 1, "start:i end:i", shape_of},
    {"Size", 1, 1, 1, 1, "", size_of},
    {"Reshape", 1, 1, 2, 1, "shape:I allowzero:i consumed_inputs:I", reshape_of},
    {"Flatten", 1, 1, 1, 1, "axis:i", flatten_of},
    {"Squeeze", 1, 1, 2, 1, "axes:I", squeeze_of},
    {"Unsqueeze", 1, 1, 2, 1, "axes:I", unsqueeze_of},
    {"Expand", 8, 2, 2, 1, "", expand_of},
    {"Tile", 6, 2, 2, 1, "", tile_of},
    {"Transpose", 1, 1, 1, 1, "perm:I", transpose_of},
    {"Concat", 1, 1, Operator::kAny, 1, "axis:i", concat_of},
    {"Split", 2, 1, 2, Operator::kAny, "axis:i split:I num_outputs:i", split_of},
    {"Slice", 1, 1, 5, 1, "starts:I ends:I axes:I", slice_of},
    {"Pad", 2, 1, 4, 1, "pads:I mode:s value:f", pad_of, refuse_pad},
    {"Constant", 1, 0, 0, 1, "value:t value_int:i value_float:f value_ints:I value_floats:F",
     constant_of},
    {"ConstantOfShape", 9, 1, 1, 1, "value:t", constant_of_shape},
    {"Range", 11, 3, 3, 1, "", range_of},
    {"EyeLike", 9, 1, 1, 1, "dtype:i k:i", eye_like, refuse_eye},
    {"Trilu", 14, 1, 2, 1, "upper:i", trilu},
    {"DepthToSpace", 1, 1, 1, 1, "blocksize:i mode:s", depth_to_space,
     [](const Node& n) {
       return refuse_unless(n, "mode", {"DCR", "CRD"});
     }},
    {"SpaceToDepth", 1, 1, 1, 1, "blocksize:i", space_to_depth},
};

}  // namespace

std::span<const Operator> shape_operators() { return kShapeRows; }

}  // namespace tensor::onnx

// Operators that only rename elements: reshape, transpose, slice, broadcast_to, and the functions
// built on them.
#include <algorithm>

#include "src/core/dispatch.h"
#include "src/core/loop.h"
#include "src/ops/op.h"
#include "src/ops/view.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

using MaybeLayout = std::optional<Layout>;

// ---- reshape

// Resolves a -1 in the wanted shape.
Shape resolve_reshape(const Shape& from, const Attrs& attrs) {
  Shape wanted = attrs.dims("shape");
  std::int64_t known = 1;
  int open = -1;
  for (int axis = 0; axis < wanted.rank(); ++axis) {
    if (wanted[axis] == -1 && open < 0)
      open = axis;
    else if (wanted[axis] < 0)
      fail("reshape", "got the shape ", wanted, ", need extents >= 0 and at most one -1");
    else if (__builtin_mul_overflow(known, wanted[axis], &known))
      fail("reshape", "the shape ", wanted, " is too large");
  }
  const std::int64_t size = num_elements(from);
  if (open >= 0 && known > 0 && size % known == 0) {
    wanted[open] = size / known;
    known = size;
  } else if (open >= 0) {
    fail("reshape", "cannot fill in the -1 of ", wanted, " from the shape ", from, " of ", size,
         " elements");
  }
  if (known != size)
    fail("reshape", "cannot read the shape ", from, " of ", size, " elements as ", wanted);
  return wanted;
}

TensorType infer_reshape(std::span<const TensorType> in, const Attrs& attrs) {
  return {resolve_reshape(in[0].shape, attrs), in[0].dtype};
}

// Walks both shapes in groups of equal size; a group of source axes must be walkable as one to be
// cut anew.
MaybeLayout view_reshape(const TensorType& type, const Strides& strides, const Attrs& attrs) {
  const Shape wanted = resolve_reshape(type.shape, attrs);
  if (num_elements(wanted) == 0) return Layout{wanted, row_major(wanted), 0};
  Shape from;
  Strides from_strides;
  for (int axis = 0; axis < type.shape.rank(); ++axis) {
    if (type.shape[axis] == 1) continue;
    from.push_back(type.shape[axis]);
    from_strides.push_back(strides[axis]);
  }
  Strides result = Strides::filled(wanted.rank(), 0);
  int source = 0, target = 0;
  while (source < from.rank()) {
    std::int64_t have = from[source], want = 1;
    int source_end = source + 1, target_end = target;
    while (have != want) {
      if (have < want)
        have *= from[source_end++];
      else
        want *= wanted[target_end++];
    }
    for (int axis = source; axis + 1 < source_end; ++axis)
      if (from_strides[axis] != from_strides[axis + 1] * from[axis + 1]) return std::nullopt;
    std::int64_t step = from_strides[source_end - 1];
    for (int axis = target_end - 1; axis >= target; --axis) {
      result[axis] = step;
      step *= wanted[axis];
    }
    source = source_end;
    target = target_end;
  }
  return Layout{wanted, result, 0};
}

void eval_copy(std::span<const ConstView> in, const Attrs&, const View& out) {
  // Row-major order of both sides: write the output through the input's shape.
  View target = out;
  target.shape = in[0].shape;
  target.strides = row_major(in[0].shape);
  dispatch(out.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for_each_index(
        target.shape,
        [&](std::int64_t to, std::int64_t from) { target.as<T>()[to] = in[0].as<T>()[from]; },
        target.strides, in[0].strides);
  });
}

// ---- transpose

Dims resolve_axes(const Shape& shape, const Attrs& attrs) {
  Dims axes = attrs.dims("axes");
  Dims seen = Dims::filled(shape.rank(), 0);
  if (axes.rank() != shape.rank())
    fail("transpose", "got ", axes.rank(), " axes ", axes, " for the shape ", shape,
         ", need each of its axes once");
  for (auto& axis : axes) {
    axis = normalize_axis(axis, shape.rank(), "transpose");
    if (seen[static_cast<int>(axis)]++)
      fail("transpose", "axis ", axis, " is named twice in ", attrs.dims("axes"));
  }
  return axes;
}

template <class D>
D permuted(const D& values, const Dims& axes) {
  D result;
  for (const auto axis : axes) result.push_back(values[static_cast<int>(axis)]);
  return result;
}

TensorType infer_transpose(std::span<const TensorType> in, const Attrs& attrs) {
  return {permuted(in[0].shape, resolve_axes(in[0].shape, attrs)), in[0].dtype};
}

MaybeLayout view_transpose(const TensorType& type, const Strides& strides, const Attrs& attrs) {
  const Dims axes = resolve_axes(type.shape, attrs);
  return Layout{permuted(type.shape, axes), permuted(strides, axes), 0};
}

// ---- slice: start, extent and step of every axis, already clamped (see slice_axes)

// Whether there are `extent` elements from `start` on; the step of one alone may be any.
bool holds(std::int64_t shape, std::int64_t start, std::int64_t extent, std::int64_t step) {
  if (extent < 0 || step == 0) return false;
  if (extent == 0) return true;
  if (start < 0 || start >= shape) return false;
  return extent - 1 <= (step > 0 ? (shape - 1 - start) / step : -(start / step));
}

TensorType infer_slice(std::span<const TensorType> in, const Attrs& attrs) {
  const Dims start = attrs.dims("start"), extent = attrs.dims("extent"), step = attrs.dims("step");
  const Shape& shape = in[0].shape;
  if (start.rank() != shape.rank() || extent.rank() != shape.rank() || step.rank() != shape.rank())
    fail("slice", "got the start ", start, ", extent ", extent, " and step ", step,
         " for the shape ", shape, ", need one of each for every axis");
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!holds(shape[axis], start[axis], extent[axis], step[axis]))
      fail("slice", "axis ", axis, " of ", shape, " does not hold ", attrs);
  return {extent, in[0].dtype};
}

MaybeLayout view_slice(const TensorType& type, const Strides& strides, const Attrs& attrs) {
  const Dims start = attrs.dims("start"), extent = attrs.dims("extent"), step = attrs.dims("step");
  Layout layout{extent, strides, 0};
  for (int axis = 0; axis < type.shape.rank(); ++axis) {
    if (num_elements(extent) > 0) layout.offset += start[axis] * strides[axis];
    if (extent[axis] > 1) layout.strides[axis] *= step[axis];  // else it may be out of range
  }
  return layout;
}

// ---- broadcast_to

TensorType infer_broadcast(std::span<const TensorType> in, const Attrs& attrs) {
  const Shape shape = attrs.dims("shape");
  if (!(broadcast_shapes(in[0].shape, shape, "broadcast_to") == shape))
    fail("broadcast_to", "cannot stretch the shape ", in[0].shape, " to ", shape,
         ": only axes of extent 1 stretch");
  return {shape, in[0].dtype};
}

MaybeLayout view_broadcast(const TensorType& type, const Strides& strides, const Attrs& attrs) {
  const Shape shape = attrs.dims("shape");
  return Layout{shape, broadcast_strides(type.shape, strides, shape), 0};
}

constexpr OpInfo view_row(Op op, std::string_view name, decltype(OpInfo::infer) infer,
                          decltype(OpInfo::view) view) {
  return {op, name, 1, 1, Pattern::view, infer, eval_copy, view};
}
constexpr OpInfo kViewRows[] = {
    view_row(Op::reshape, "reshape", infer_reshape, view_reshape),
    view_row(Op::transpose, "transpose", infer_transpose, view_transpose),
    view_row(Op::slice, "slice", infer_slice, view_slice),
    view_row(Op::broadcast_to, "broadcast_to", infer_broadcast, view_broadcast),
};

}  // namespace

std::span<const OpInfo> view_ops() { return kViewRows; }

Dims joined(Dims a, const Dims& b) {
  for (const std::int64_t value : b) a.push_back(value);
  return a;
}

Dims distinct_axes(const Dims& axes, int rank, std::string_view where) {
  Dims result;
  for (const std::int64_t axis : axes) {
    const int at = normalize_axis(axis, rank, where);
    if (result.contains(at)) fail(where, "got the axis ", at, " twice in ", axes);
    result.push_back(at);
  }
  return result;
}

Tensor slice_axes(const Tensor& x, const Dims& start, const Dims& extent, const Dims& step) {
  return apply_op(Op::slice, {x}, {{"start", start}, {"extent", extent}, {"step", step}});
}

Tensor slice_axis(const Tensor& x, int axis, std::int64_t start, std::int64_t extent,
                  std::int64_t step) {
  Dims starts = Dims::filled(x.rank(), 0), extents = x.shape(), steps = Dims::filled(x.rank(), 1);
  starts[axis] = start;
  extents[axis] = extent;
  steps[axis] = step;
  return slice_axes(x, starts, extents, steps);
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  return apply_op(Op::reshape, {x}, {{"shape", shape}});
}

Tensor transpose(const Tensor& x) {
  Dims axes;
  for (int axis = x.rank() - 1; axis >= 0; --axis) axes.push_back(axis);
  return transpose(x, axes);
}
Tensor transpose(const Tensor& x, const Dims& axes) {
  return apply_op(Op::transpose, {x}, {{"axes", axes}});
}

Tensor swapaxes(const Tensor& x, int a, int b) {
  Dims axes;
  for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
  std::swap(axes[normalize_axis(a, x.rank(), "swapaxes")],
            axes[normalize_axis(b, x.rank(), "swapaxes")]);
  return transpose(x, axes);
}

Tensor expand_dims(const Tensor& x, int axis) {
  Shape shape = x.shape();
  shape.insert(normalize_axis(axis, x.rank() + 1, "expand_dims"), 1);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, const Axes& axis) {
  const Dims axes = axis.resolve(x.rank(), "squeeze");
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (!axes.contains(i))
      shape.push_back(x.shape(i));
    else if (x.shape(i) != 1 && !axis.every())
      fail("squeeze", "axis ", i, " of ", x.shape(), " has the extent ", x.shape(i), ", need 1");
    else if (x.shape(i) != 1)
      shape.push_back(x.shape(i));
  }
  return reshape(x, shape);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return apply_op(Op::broadcast_to, {x}, {{"shape", shape}});
}

Tensor flip(const Tensor& x, const Axes& axis) {
  Dims start = Dims::filled(x.rank(), 0), step = Dims::filled(x.rank(), 1);
  for (const auto i : axis.resolve(x.rank(), "flip")) {
    start[static_cast<int>(i)] = x.shape(static_cast<int>(i)) - 1;
    step[static_cast<int>(i)] = -1;
  }
  return slice_axes(x, start, x.shape(), step);
}

std::vector<Tensor> split(const Tensor& x, const Ints& indices, int axis) {
  const int at = normalize_axis(axis, x.rank(), "split");
  const std::int64_t extent = x.shape(at);
  std::vector<Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= indices.size(); ++i) {
    std::int64_t end = i < indices.size() ? indices[i] : extent;
    if (end < 0) end += extent;
    end = std::clamp<std::int64_t>(end, 0, extent);
    parts.push_back(
        slice_axis(x, at, std::min(begin, extent), std::max<std::int64_t>(end - begin, 0)));
    begin = end;
  }
  return parts;
}

std::vector<Tensor> split(const Tensor& x, std::int64_t sections, int axis) {
  const int at = normalize_axis(axis, x.rank(), "split");
  if (sections <= 0 || x.shape(at) % sections != 0)
    fail("split", "axis ", at, " of ", x.shape(), " does not split into ", sections,
         " equal sections");
  const std::int64_t extent = x.shape(at) / sections;
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < sections; ++i)
    parts.push_back(slice_axis(x, at, i * extent, extent));
  return parts;
}

}  // namespace tensor

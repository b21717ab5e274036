// Operators that move whole elements to other places: concatenate, pad, take, take_along_axis,
// put_along_axis. They
// never look at values, so their loops are written for an element's size rather than for its type.
#include "src/ops/gather.h"

#include <algorithm>
#include <cstring>

#include "src/core/loop.h"
#include "src/ops/op.h"
#include "src/ops/promote.h"
#include "tensor/creation.h"
#include "tensor/ops.h"

namespace tensor {
namespace {

template <std::size_t size>
void move_loop(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  std::byte* out = data[0];
  const std::byte* in = data[1];
  if (strides[0] == size && strides[1] == size) {
    std::memcpy(out, in, static_cast<std::size_t>(count) * size);
    return;
  }
  for (; count > 0; --count, out += strides[0], in += strides[1]) std::memcpy(out, in, size);
}

InnerLoop move_loop_for(DType dtype) {
  switch (item_size(dtype)) {
    case 1:
      return move_loop<1>;
    case 2:
      return move_loop<2>;
    case 4:
      return move_loop<4>;
    default:
      return move_loop<8>;
  }
}

// to = from, broadcast to the shape of `to`.
void move_elements(const ConstView& from, const View& to) {
  run_strided(to, {&from, 1}, move_loop_for(to.dtype));
}

template <class V>
V shifted(V x, std::int64_t elements) {
  x.data += elements * item_size(x.dtype);
  return x;
}

int axis_of(const Attrs& attrs, int rank, std::string_view where) {
  return normalize_axis(attrs.integer("axis"), rank, where);
}

// ---- concatenate. Attribute: axis.

TensorType infer_concatenate(std::span<const TensorType> in, const Attrs& attrs) {
  TensorType result = in[0];
  const int axis = axis_of(attrs, result.shape.rank(), "concatenate");
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (in[i].dtype != result.dtype)
      fail("concatenate", "got ", in[0], " and ", in[i], ", need equal types");
    Shape shape = in[i].shape;
    if (shape.rank() == result.shape.rank()) shape[axis] = in[0].shape[axis];
    if (!(shape == in[0].shape))
      fail("concatenate", "part ", i, " has the shape ", in[i].shape, ", part 0 has ", in[0].shape,
           ": only the extents of axis ", axis, " may differ");
    if (__builtin_add_overflow(result.shape[axis], in[i].shape[axis], &result.shape[axis]))
      fail("concatenate", "the extents of axis ", axis, " add up to more than 2^63");
  }
  return result;
}

void eval_concatenate(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const int axis = axis_of(attrs, out.rank(), "concatenate");
  View place = out;
  for (const ConstView& part : in) {
    place.shape[axis] = part.shape[axis];
    move_elements(part, place);
    place = shifted(place, part.shape[axis] * out.strides[axis]);
  }
}

// ---- pad. Attributes: before, after (of every axis); the second input is the value.

TensorType infer_pad(std::span<const TensorType> in, const Attrs& attrs) {
  TensorType result = in[0];
  const Dims before = attrs.dims("before"), after = attrs.dims("after");
  if (before.rank() != result.shape.rank() || after.rank() != result.shape.rank())
    fail("pad", "got widths for ", before.rank(), " axes for the shape ", in[0].shape, ", need ",
         result.shape.rank(), " (or one pair for all axes)");
  for (int axis = 0; axis < result.shape.rank(); ++axis) {
    std::int64_t& extent = result.shape[axis];
    if (before[axis] < 0 || after[axis] < 0)
      fail("pad", "got the widths ", before[axis], " and ", after[axis], " for axis ", axis,
           ", need at least 0: leave elements out with a slice");
    if (__builtin_add_overflow(extent, before[axis], &extent) ||
        __builtin_add_overflow(extent, after[axis], &extent))
      fail("pad", "the widths ", before[axis], " and ", after[axis], " of axis ", axis,
           " are too large");
  }
  if (in[1].dtype != in[0].dtype) fail("pad", "got ", in[0], " and ", in[1], ", need equal types");
  if (!in[1].shape.empty())
    fail("pad", "got a value of the shape ", in[1].shape, ", need a single number");
  return result;
}

void eval_pad(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  move_elements(in[1], out);
  View inside = out;
  inside.shape = in[0].shape;
  const Dims before = attrs.dims("before");
  for (int axis = 0; axis < out.rank(); ++axis)
    inside = shifted(inside, before[axis] * out.strides[axis]);
  move_elements(in[0], inside);
}

// ---- take, take_along_axis and put_along_axis. Attribute: axis; the second input holds i64
// indices. The first two may have "clip": then none is out of bounds.

void check_indices(const TensorType& indices, std::string_view where) {
  if (indices.dtype != i64) fail(where, "got indices of ", indices.dtype, ", need i64");
}

TensorType infer_take(std::span<const TensorType> in, const Attrs& attrs) {
  check_indices(in[1], "take");
  TensorType result = in[0];
  const int axis = axis_of(attrs, result.shape.rank(), "take");
  result.shape.erase(axis);
  for (int i = 0; i < in[1].shape.rank(); ++i) result.shape.insert(axis + i, in[1].shape[i]);
  return result;
}

void eval_take(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const ConstView &x = in[0], &indices = in[1];
  const int axis = axis_of(attrs, x.rank(), "take");
  const bool is_clipped = attrs.flag("clip", false);
  // Where the elements of an index lie in x and in the result, in elements.
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  places.reserve(static_cast<std::size_t>(num_elements(indices.shape)));
  Strides index_strides;  // of out, along the axes of the indices
  for (int i = 0; i < indices.rank(); ++i) index_strides.push_back(out.strides[axis + i]);
  const auto resolve = [&](std::int64_t at, std::int64_t place) {
    const std::int64_t index =
        resolve_index(indices.as<std::int64_t>()[at], x.shape, axis, "take", is_clipped);
    places.emplace_back(index * x.strides[axis], place);
  };
  for_each_index(indices.shape, resolve, indices.strides, index_strides);
  // An index moves a block, all axes behind its own, for every place of those before; or, where
  // many such blocks would be of an element or two, all other axes at once.
  constexpr std::int64_t kFew = 32, kShort = 4;
  std::int64_t count_before = 1, count_behind = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) (i < axis ? count_before : count_behind) *= x.shape[i];
  const int outer = count_before < kFew || count_behind >= kShort ? axis : 0;
  ConstView from = x;
  View to = out;
  Shape before;
  Strides from_before, to_before;
  for (int i = 0; i < outer; ++i) {
    before.push_back(x.shape[i]);
    from_before.push_back(x.strides[i]), to_before.push_back(out.strides[i]);
    from.shape.erase(0), from.strides.erase(0), to.shape.erase(0), to.strides.erase(0);
  }
  from.shape.erase(axis - outer), from.strides.erase(axis - outer);
  for (int i = 0; i < indices.rank(); ++i)
    to.shape.erase(axis - outer), to.strides.erase(axis - outer);
  const std::int64_t size = item_size(x.dtype);
  const auto bytes = static_cast<std::size_t>(num_elements(from.shape) * size);
  const bool is_whole = from.is_contiguous() && to.is_contiguous();
  const auto move = [&](std::int64_t source, std::int64_t target) {
    for (const auto& [at, place] : places)
      if (is_whole)
        std::memcpy(to.data + (target + place) * size, from.data + (source + at) * size, bytes);
      else
        move_elements(shifted(from, source + at), shifted(to, target + place));
  };
  for_each_index(before, move, from_before, to_before);
}

// The shape that both inputs are broadcast to, but for the axis itself.
TensorType infer_take_along_axis(std::span<const TensorType> in, const Attrs& attrs) {
  check_indices(in[1], "take_along_axis");
  Shape shape = in[0].shape;
  if (shape.rank() != in[1].shape.rank())
    fail("take_along_axis", "got indices of the shape ", in[1].shape, " for the shape ", shape,
         ", need as many axes");
  shape[axis_of(attrs, shape.rank(), "take_along_axis")] = 1;
  return {broadcast_shapes(shape, in[1].shape, "take_along_axis"), in[0].dtype};
}

void eval_take_along_axis(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const ConstView &x = in[0], &indices = in[1];
  const int axis = axis_of(attrs, x.rank(), "take_along_axis");
  const bool is_clipped = attrs.flag("clip", false);
  Strides strides = broadcast_strides(x.shape, x.strides, out.shape);
  strides[axis] = 0;
  const auto size = static_cast<std::size_t>(item_size(x.dtype));
  const auto move = [&](std::int64_t to, std::int64_t at, std::int64_t from) {
    const std::int64_t index =
        resolve_index(indices.as<std::int64_t>()[at], x.shape, axis, "take_along_axis", is_clipped);
    std::memcpy(shifted(out, to).data, shifted(x, from + index * x.strides[axis]).data, size);
  };
  for_each_index(out.shape, move, out.strides,
                 broadcast_strides(indices.shape, indices.strides, out.shape), strides);
}

TensorType infer_put_along_axis(std::span<const TensorType> in, const Attrs& attrs) {
  const TensorType places = infer_take_along_axis(in.first(2), attrs);
  if (in[2].dtype != in[0].dtype)
    fail("put_along_axis", "got ", in[0], " and ", in[2], ", need equal types");
  if (!(broadcast_shapes(places.shape, in[2].shape, "put_along_axis") == places.shape))
    fail("put_along_axis", "got values of the shape ", in[2].shape, " for places of the shape ",
         places.shape);
  Shape others = places.shape;
  const int axis = axis_of(attrs, others.rank(), "put_along_axis");
  others[axis] = in[0].shape[axis];
  if (!(others == in[0].shape))
    fail("put_along_axis", "got indices of the shape ", in[1].shape, " for the shape ", in[0].shape,
         ", which is stretched on axis ", axis, " alone");
  return in[0];
}

void eval_put_along_axis(std::span<const ConstView> in, const Attrs& attrs, const View& out) {
  const ConstView &x = in[0], &indices = in[1], &values = in[2];
  move_elements(x, out);
  const int axis = axis_of(attrs, x.rank(), "put_along_axis");
  Shape places = x.shape;
  places[axis] = indices.shape[axis];
  Strides strides = out.strides;
  strides[axis] = 0;
  Strides from_strides = broadcast_strides(values.shape, values.strides, places),
          index_strides = broadcast_strides(indices.shape, indices.strides, places);
  // The last axes along which an index is repeated are a block that it moves.
  Shape block;
  Strides block_from, block_to;
  const auto size = static_cast<std::size_t>(item_size(x.dtype));
  std::size_t bytes = size;
  for (int i = places.rank() - 1; i > axis && places[i] > 0; --i) {
    if (index_strides[i] != 0 && places[i] != 1) break;
    block.insert(0, places[i]);
    block_from.insert(0, from_strides[i]), block_to.insert(0, strides[i]);
    if (!is_contiguous(block, block_from) || !is_contiguous(block, block_to)) break;
    bytes *= static_cast<std::size_t>(places[i]);
    places.erase(i), from_strides.erase(i), index_strides.erase(i), strides.erase(i);
  }
  const auto move = [&](std::int64_t from, std::int64_t at, std::int64_t to) {
    const std::int64_t index =
        resolve_index(indices.as<std::int64_t>()[at], x.shape, axis, "put_along_axis");
    std::memcpy(shifted(out, to + index * out.strides[axis]).data, shifted(values, from).data,
                bytes);
  };
  for_each_index(places, move, from_strides, index_strides, strides);
}

constexpr OpInfo row(Op op, std::string_view name, int min_inputs, int max_inputs,
                     decltype(OpInfo::infer) infer, decltype(OpInfo::eval) eval) {
  return {op, name, min_inputs, max_inputs, Pattern::injective, infer, eval};
}
constexpr OpInfo kGatherRows[] = {
    row(Op::concatenate, "concatenate", 1, kAnyNumber, infer_concatenate, eval_concatenate),
    row(Op::pad, "pad", 2, 2, infer_pad, eval_pad),
    row(Op::take, "take", 2, 2, infer_take, eval_take),
    row(Op::take_along_axis, "take_along_axis", 2, 2, infer_take_along_axis, eval_take_along_axis),
    {Op::put_along_axis, "put_along_axis", 3, 3, Pattern::opaque, infer_put_along_axis,
     eval_put_along_axis},
};

Tensor whole_indices(const Tensor& indices, std::string_view where) {
  if (kind_of(indices.dtype()) != Kind::integer)
    fail(where, "got indices of ", indices.dtype(), ", need integers");
  return cast(indices, i64);
}

Tensor gathered(Op op, const Tensor& x, const Tensor& indices, int axis) {
  const std::string_view where = info(op).name;
  return apply_op(op, {x, whole_indices(indices, where)},
                  {{"axis", normalize_axis(axis, x.rank(), where)}});
}

}  // namespace

std::span<const OpInfo> gather_ops() { return kGatherRows; }

std::int64_t resolve_index(std::int64_t index, const Shape& shape, int axis, std::string_view where,
                           bool is_clipped) {
  const std::int64_t extent = shape[axis];
  if (is_clipped && extent > 0) index = std::clamp(index, -extent, extent - 1);
  if (index < -extent || index >= extent)
    fail(where, "index ", index, " is out of bounds for axis ", axis, " of the shape ", shape);
  return index < 0 ? index + extent : index;
}

Tensor concatenate(const std::vector<Tensor>& parts, int axis) {
  if (parts.empty()) fail("concatenate", "got no tensors, need at least one");
  const DType dtype = result_type(parts, "concatenate");
  std::vector<Tensor> promoted;
  for (const Tensor& part : parts) promoted.push_back(cast(part, dtype));
  return apply_op(Op::concatenate, promoted,
                  {{"axis", normalize_axis(axis, parts[0].rank(), "concatenate")}});
}

Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& pad_width,
           const Tensor& constant_value) {
  Dims before, after;
  for (const auto& [first, last] : pad_width) {
    before.push_back(first);
    after.push_back(last);
  }
  if (pad_width.size() == 1) {  // NumPy's rule: one pair serves every axis
    before = Dims::filled(x.rank(), before[0]);
    after = Dims::filled(x.rank(), after[0]);
  }
  return apply_op(Op::pad, {x, cast(constant_value, x.dtype())},
                  {{"before", before}, {"after", after}});
}

Tensor take(const Tensor& x, const Tensor& indices, int axis) {
  return gathered(Op::take, x, indices, axis);
}

Tensor take_clipped(const Tensor& x, const Tensor& indices, int axis) {
  return apply_op(Op::take, {x, whole_indices(indices, "take")},
                  {{"axis", normalize_axis(axis, x.rank(), "take")}, {"clip", true}});
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis) {
  return gathered(Op::take_along_axis, x, indices, axis);
}

Tensor put_along_axis(const Tensor& x, const Tensor& indices, const Tensor& values, int axis) {
  check_fits(values, x.dtype(), "put_along_axis", "convert the tensor with astype first");
  return apply_op(Op::put_along_axis,
                  {x, whole_indices(indices, "put_along_axis"), cast(values, x.dtype())},
                  {{"axis", normalize_axis(axis, x.rank(), "put_along_axis")}});
}

}  // namespace tensor

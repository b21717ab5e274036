#include "src/trace/passes/short_folds.h"

#include <algorithm>

#include "tensor/creation.h"

namespace tensor {
namespace {

constexpr std::int64_t kMost = 4;

// What joins two parts of the reduction; nullopt of other operators.
std::optional<Op> joining(Op op) {
  switch (op) {
    case Op::sum:
    case Op::mean:
      return Op::add;
    case Op::max:
      return Op::maximum;
    case Op::min:
      return Op::minimum;
    default:
      return std::nullopt;
  }
}

// Sums of 16-bit floats and of integers are made in a wider type.
bool adds_as_it_reduces(const Node& node, DType from) {
  const bool is_choice = node.op == Op::max || node.op == Op::min;
  return from == node.type.dtype && (is_choice || from == f32 || from == f64);
}

}  // namespace

std::optional<ValueId> short_fold(Rewriter& r, ValueId, const Node& node) {
  const auto join = joining(node.op);
  if (!join) return std::nullopt;
  const ValueId x = r.inputs(node)[0];
  const TensorType type = r.to().type(x);
  const Dims axes = node.attrs.dims("axis");
  std::int64_t count = 1;
  for (const auto axis : axes) count *= type.shape[static_cast<int>(axis)];
  const bool has_last = std::find(axes.begin(), axes.end(), type.shape.rank() - 1) != axes.end();
  if (count < 2 || count > kMost || has_last || !adds_as_it_reduces(node, type.dtype))
    return std::nullopt;
  std::optional<ValueId> joined;
  for (std::int64_t number = 0; number < count; ++number) {
    Dims start, extent = type.shape, step;
    for (int axis = 0; axis < extent.rank(); ++axis) start.push_back(0), step.push_back(1);
    std::int64_t rest = number;
    for (const auto at : axes) {
      const auto axis = static_cast<int>(at);
      start[axis] = rest % type.shape[axis], rest /= type.shape[axis];
      extent[axis] = 1;
    }
    const ValueId slice = r.to().add(
        Op::slice, {x}, {{"start", start}, {"extent", extent}, {"step", step}}, node.where);
    const ValueId part = r.reshaped(slice, node.type.shape, node.where);
    joined = joined ? r.to().add(*join, {*joined, part}, {}, node.where) : part;
  }
  if (node.op != Op::mean) return joined;
  const ValueId share =
      r.to().add_constant(full({}, 1 / static_cast<double>(count), type.dtype), node.where);
  return r.to().add(Op::multiply, {*joined, share}, {}, node.where);
}

}  // namespace tensor

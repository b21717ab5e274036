#include "src/trace/passes/shared_factors.h"

#include <algorithm>

namespace tensor {

std::optional<ValueId> shared_factor(Rewriter& r, ValueId, const Node& node) {
  if (node.op != Op::matmul) return std::nullopt;
  const auto in = r.inputs(node);
  const Shape left = r.to().type(in[0]).shape, right = r.to().type(in[1]).shape;
  const int rank = left.rank(), rows = rank - 2;
  if (rank < 3 || right.rank() != rank || left[rows] != 1) return std::nullopt;
  int shared = -1;
  for (int axis = 0; axis < rows; ++axis)
    if (right[axis] == 1 && left[axis] > 1 && (shared < 0 || left[axis] > left[shared]))
      shared = axis;
  // Where all places share it, they are rows of one matrix already.
  const bool has_others = std::any_of(right.begin(), right.begin() + rows,
                                      [](std::int64_t extent) { return extent > 1; });
  if (shared < 0 || !has_others) return std::nullopt;
  Dims axes;
  for (int axis = 0; axis < rank; ++axis)
    axes.push_back(axis == shared ? rows : axis == rows ? shared : axis);
  const auto turned = [&](ValueId value) {
    return r.to().add(Op::transpose, {value}, {{"axes", axes}}, node.where);
  };
  return turned(r.to().add(Op::matmul, {turned(in[0]), in[1]}, node.attrs, node.where));
}

}  // namespace tensor

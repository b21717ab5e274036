#include <algorithm>

#include "src/ops/op.h"
#include "tensor/ops.h"

namespace tensor {

int stored_axis(const Attrs& attrs, int rank, std::string_view where) {
  const std::int64_t axis = attrs.integer("axis");
  if (axis < 0 || axis >= rank)
    fail(where, "got the axis ", axis, " for a tensor of rank ", rank, ", need one from 0 on",
         rank == 0 ? " (it has none)" : "");
  return static_cast<int>(axis);
}

Dims Axes::resolve(int rank, std::string_view where) const {
  Dims result;
  if (all_) {
    for (int axis = 0; axis < rank; ++axis) result.push_back(axis);
    return result;
  }
  for (const auto axis : axes_) {
    const int at = normalize_axis(axis, rank, where);
    if (result.contains(at)) fail(where, "axis ", at, " is named twice in ", axes_);
    result.push_back(at);
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace tensor

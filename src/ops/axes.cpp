#include <algorithm>

#include "tensor/ops.h"

namespace tensor {

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

// What the reference and the fast kernels of take share.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/handle.h"
#include "tensor/shape.h"

namespace tensor {

/// An index along an axis, counted from the front. Throws UserError naming `where` when it is out
/// of bounds; one that is clipped is then that of the nearest element, if there is one.
std::int64_t resolve_index(std::int64_t index, const Shape& shape, int axis, std::string_view where,
                           bool is_clipped = false);

/// take of indices that are known to be within bounds. They are clipped, which costs nothing, so
/// that a kernel that cannot report others need not know it.
Tensor take_clipped(const Tensor& x, const Tensor& indices, int axis);

}  // namespace tensor

// What the reference and the fast kernels of take share.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/shape.h"

namespace tensor {

/// An index along an axis, counted from the front. Throws UserError naming `where` when it is out
/// of bounds.
std::int64_t resolve_index(std::int64_t index, const Shape& shape, int axis,
                           std::string_view where);

}  // namespace tensor

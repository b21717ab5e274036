// Heights and widths as attributes: what the convolutions, pools and interpolate share.
#pragma once

#include "tensor/attrs.h"
#include "tensor/ops.h"

namespace tensor {

/// The largest height, width or option of a spatial operator: products of two such numbers, and
/// sums of two such products, stay within 64 bits.
inline constexpr std::int64_t kLargestExtent = (std::int64_t{1} << 31) - 1;

/// An attribute of two numbers. Throws UserError naming `where` unless both are in [least,
/// kLargestExtent].
Pair pair_of(const Attrs& attrs, std::string_view name, std::int64_t least, std::string_view where);

/// The inverse: the attribute's value.
AttrValue pair_value(const Pair& pair);

/// Throws UserError naming `where` unless x is [N, C, H, W] with H and W up to kLargestExtent.
void check_images(const Shape& x, std::string_view where);

}  // namespace tensor

// What the reference and the fast kernels of max_pool2d and avg_pool2d share.
#pragma once

#include "src/ops/pair.h"

namespace tensor {

struct Pool {
  Pair kernel, stride, padding;
  bool rounds_up = false;      // the last window may reach beyond the padded image
  bool counts_padding = true;  // in averages
};

/// The attributes kernel_size, stride and padding, and, which may be absent, ceil_mode and
/// count_include_pad. Throws UserError naming `where` when they do not fit together.
Pool pool_of(const Attrs& attrs, std::string_view where);

/// Places [begin, end) of an axis of the image.
struct Range {
  std::int64_t begin, end;
};

/// The part of a window that lies on the image, at least one place; `place` counts the windows.
Range window_at(std::int64_t place, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                std::int64_t extent);

/// How many places of a window an average is over: those on the image, and those of the padding
/// where it counts.
std::int64_t counted_at(std::int64_t place, std::int64_t kernel, std::int64_t stride,
                        std::int64_t padding, std::int64_t extent, bool counts_padding);

}  // namespace tensor

// What the reference and the fast kernels of roi_align share.
#pragma once

#include "src/ops/pair.h"

namespace tensor {

/// Samples of a cell along an axis: no more, however long the cell is.
inline constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;

struct RoiAlign {
  Pair cells;
  double scale = 1;
  std::int64_t samples = 0;  // of a cell along an axis; 0: one a pixel, rounded up
  bool is_aligned = false;   // pixels lie around whole numbers, not behind them
};

/// The attributes output_size, spatial_scale, sampling_ratio and aligned. Throws UserError where
/// they are out of range.
RoiAlign roi_align_of(const Attrs& attrs);

}  // namespace tensor

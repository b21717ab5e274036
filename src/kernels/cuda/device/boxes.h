// Boxes that the tensor memory accelerator copies.
#pragma once

namespace tensor::device {

/// Where a box lies in a tensor of so many axes.
template <int kAxes>
struct Corner {
  int axes[kAxes];
};

}  // namespace tensor::device

// Boxes that the tensor memory accelerator copies, and the rings in shared memory that they fill.
#pragma once

#include "ptx.h"

namespace tensor::device {

/// Where a box lies in a tensor of so many axes.
template <int kAxes>
struct Corner {
  int axes[kAxes];
};

/// A stage of a ring of kStages, and the parity that its barriers have this time round.
template <int kStages>
struct RingTurn {
  int stage = 0;
  u32 parity = 0;
  void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  void skip(int steps) {
    const int sum = stage + steps;
    stage = sum % kStages;
    parity ^= sum / kStages & 1;
  }
};

}  // namespace tensor::device

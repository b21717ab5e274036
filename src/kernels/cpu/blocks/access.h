// Access: how the elements of an operand are reached from a position in the order in which a kernel
// goes through its elements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/shape.h"

namespace tensor::cpu {

class Access {
 public:
  Access() = default;
  /// The strides of axes of these extents, outermost first; 0 where the operand is broadcast.
  Access(const Shape& extents, const Strides& strides) {
    for (int axis = 0; axis < extents.rank(); ++axis) {
      if (extents[axis] == 1) continue;
      const Axis next{extents[axis], strides[axis]};
      if (!axes_.empty() && axes_.back().stride == next.stride * next.extent)
        axes_.back() = {axes_.back().extent * next.extent, next.stride};
      else
        axes_.push_back(next);
    }
  }

  /// Element i is at offset i.
  bool is_linear() const {
    return axes_.empty() || (axes_.size() == 1 && axes_.front().stride == 1);
  }
  /// How far each element is from the one before it, where all of them have one distance.
  std::optional<std::int64_t> stride() const {
    if (axes_.size() > 1) return std::nullopt;
    return axes_.empty() ? 0 : axes_.front().stride;
  }
  /// Every element is the same one.
  bool is_constant() const {
    return std::all_of(axes_.begin(), axes_.end(), [](const Axis& a) { return a.stride == 0; });
  }

  /// Calls run(offset, stride, count) for the stretches of elements begin ... begin+count-1.
  template <class Run>
  void walk(std::int64_t begin, std::int64_t count, Run&& run) const {
    if (axes_.size() < 2) {
      const std::int64_t stride = axes_.empty() ? 1 : axes_.front().stride;
      run(begin * stride, stride, count);
      return;
    }
    std::int64_t index[kMaxRank], offset = 0;
    for (std::size_t axis = axes_.size(); axis-- > 0; begin /= axes_[axis].extent) {
      index[axis] = begin % axes_[axis].extent;
      offset += index[axis] * axes_[axis].stride;
    }
    const Axis inner = axes_.back();
    for (std::size_t last = axes_.size() - 1; count > 0;) {
      const std::int64_t length = std::min(count, inner.extent - index[last]);
      run(offset, inner.stride, length);
      count -= length;
      offset -= index[last] * inner.stride;
      index[last] = 0;
      for (std::size_t axis = last; axis-- > 0;) {
        offset += axes_[axis].stride;
        if (++index[axis] < axes_[axis].extent) break;
        offset -= axes_[axis].stride * axes_[axis].extent;
        index[axis] = 0;
      }
    }
  }

 private:
  struct Axis {
    std::int64_t extent, stride;
  };
  std::vector<Axis> axes_;  // neighbours merged wherever that is possible
};

}  // namespace tensor::cpu

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

  /// The elements of a stretch lie far apart, but each beside that of the next stretch.
  bool is_turned() const {
    return axes_.size() > 1 && axes_[axes_.size() - 2].stride == 1 && axes_.back().stride > 1;
  }
  /// So, or with short stretches, several of them should be reached at once.
  bool has_rows() const {
    return is_turned() || (axes_.size() > 1 && axes_.back().extent < kShortStretch);
  }
  /// Where it has: a stretch is one number again and again.
  bool repeats() const { return axes_.back().stride == 0; }
  std::int64_t row_length() const { return axes_.back().extent; }

  /// As walk, and run_rows(offset, rows, row stride, columns, column stride) for several whole
  /// stretches at once.
  template <class Run, class RunRows>
  void walk_rows(std::int64_t begin, std::int64_t count, Run&& run, RunRows&& run_rows) const {
    const Axis &inner = axes_.back(), &next = axes_[axes_.size() - 2];
    while (count > 0) {
      const std::int64_t in_stretch = begin % inner.extent,
                         row = begin / inner.extent % next.extent;
      const std::int64_t rows = std::min(count / inner.extent, next.extent - row);
      std::int64_t done = rows * inner.extent;
      if (in_stretch != 0 || rows < 2) {
        done = std::min(count, inner.extent - in_stretch);
        walk(begin, done, run);
      } else {
        std::int64_t offset = 0, rest = begin;
        for (std::size_t axis = axes_.size(); axis-- > 0; rest /= axes_[axis].extent)
          offset += rest % axes_[axis].extent * axes_[axis].stride;
        run_rows(offset, rows, next.stride, inner.extent, inner.stride);
      }
      begin += done, count -= done;
    }
  }

  /// Where is_turned(): calls run_rows(offset, rows, column stride) for the elements from `column`
  /// on of some stretches.
  template <class RunRows>
  void walk_turned(std::int64_t row, std::int64_t rows, std::int64_t column,
                   RunRows&& run_rows) const {
    const std::int64_t length = row_length(), beside = axes_[axes_.size() - 2].extent;
    for (const std::int64_t end = row + rows; row < end;) {
      const std::int64_t some = std::min(end - row, beside - row % beside);
      walk(row * length + column, 1, [&](std::int64_t offset, std::int64_t, std::int64_t) {
        run_rows(offset, some, axes_.back().stride);
      });
      row += some;
    }
  }

 private:
  static constexpr std::int64_t kShortStretch = 64;
  struct Axis {
    std::int64_t extent, stride;
  };
  std::vector<Axis> axes_;  // neighbours merged wherever that is possible
};

}  // namespace tensor::cpu

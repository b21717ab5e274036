// Which groups the family folds takes: sums, means, variances and maxima of one value, of which
// whole lines side by side in memory are reduced at a time, and elementwise operators on what comes
// out, as group_norm of images whose channels lie last.
#pragma once

#include <optional>

#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/match/block_shape.h"
#include "src/trace/isolate.h"

namespace tensor::cpu {

/// The axes of the value that is reduced, in the order of memory: first those of `outer` and
/// `folded`, whatever their order, then the lanes, without gaps.
struct Folds {
  ValueId from = -1;
  std::size_t operand = 0;          // its place among the group's reads
  std::vector<ValueId> reductions;  // ascending, as are the others
  std::vector<ValueId> others;      // elementwise
  std::int64_t lanes = 1;           // elements of a line
  std::int64_t lines = 1;           // that are folded into one
  Access folded;                    // how far they are from each other
  // How far the first of them is from the value's first element, and the first of its results, in
  // the order of the rows of `shape`: of every bundle of lines.
  std::vector<std::int64_t> begins, rows;
  std::vector<std::int64_t> lane_rows;  // of every lane, behind the bundle's
  BlockShape shape;

  std::int64_t bundles() const { return static_cast<std::int64_t>(begins.size()); }
  /// Elements that make one result.
  std::int64_t count() const { return shape.column_count(); }
};

std::optional<Folds> folds_of(const Isolated& alone);

}  // namespace tensor::cpu

// Slices: groups whose results for one index of the first axis, an image say, do not depend on the
// others, so that a reference may calculate some of them alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/trace/isolate.h"

namespace tensor {

/// Some indices along the first axis of all values that depend on a group's inputs.
class Slices {
 public:
  /// What the reference kernels do in a second or two: elements of all values, where a product
  /// counts as many as take the same time.
  static constexpr double kMostEffort = 1 << 26;

  /// Of a group that takes more effort: the first, the last, and as many between, at random, as
  /// there is effort for, but at least one. The same every time. Nullopt where all are taken, or
  /// where slices depend on each other.
  static std::optional<Slices> of(const Isolated& problem, double most_effort = kMostEffort);

  const std::vector<std::int64_t>& indices() const { return indices_; }
  /// Whether a value of the graph has a slice an index.
  bool varies(ValueId id) const { return varies_[at(id)]; }
  /// The value of a read or a node, if that is what it is for the slices; else as it is.
  Tensor taken(ValueId id, const Tensor& value) const;
  /// The attributes with which a node calculates the slices.
  Attrs attrs(ValueId id, const Attrs& attrs) const;

 private:
  Slices(std::int64_t extent, std::size_t count);
  bool fit(const Isolated& problem);

  std::int64_t extent_;
  std::vector<std::int64_t> indices_;
  std::vector<bool> varies_;  // of the graph's values
};

}  // namespace tensor

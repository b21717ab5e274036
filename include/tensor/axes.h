// Axes: which axes of a tensor a function is about.
#pragma once

#include <initializer_list>
#include <string_view>

#include "tensor/export.h"
#include "tensor/shape.h"

namespace tensor {

/// NumPy's None: as axis every one, as a bound of a slice "from the beginning" or "to the end".
struct None {};
inline constexpr None none;

/// The axes of a reduction: none at all (every axis), one, or a list.
class Axes {
 public:
  Axes() = default;
  Axes(None) {}
  Axes(int axis) : all_(false), axes_{axis} {}
  Axes(std::initializer_list<std::int64_t> axes) : all_(false), axes_(axes) {}
  Axes(const Dims& axes) : all_(false), axes_(axes) {}
  bool every() const { return all_; }  ///< no axis was named
  /// Sorted, each in [0, rank). Throws UserError on a repeated or impossible axis.
  TENSOR_API Dims resolve(int rank, std::string_view where) const;

 private:
  bool all_ = true;
  Dims axes_;
};

}  // namespace tensor

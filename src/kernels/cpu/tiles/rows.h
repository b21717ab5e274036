// The left factor of a product on tiles: one row of bf16 for every row of the result.
#pragma once

#include <memory>
#include <optional>

#include "src/kernels/cpu/kernel.h"

namespace tensor::cpu {

class TileRows {
 public:
  virtual ~TileRows() = default;
  virtual std::int64_t depth() const = 0;  // numbers of a row
  /// Rows [row, row + count) of the operand at `from`, `pitch` bytes apart.
  virtual void gather(const std::byte* from, std::int64_t row, std::int64_t count, std::byte* to,
                      std::int64_t pitch) const = 0;
  /// Row stride in bytes if rows can be read in place, else nullopt.
  virtual std::optional<std::int64_t> row_bytes() const = 0;
};

/// Of a matmul [..., m, k] x [k, n]: rows in the order of the axes of the result.
std::unique_ptr<TileRows> matrix_rows(const Layout& left, const Shape& result);

/// Of a conv2d: a row for every pixel of the result [n, c, h, w], in the order n, h, w. It holds
/// what the filter lies on, in the order height, width, channels; zeros beyond the image.
std::unique_ptr<TileRows> window_rows(const Layout& image, const Shape& weights,
                                      const Attrs& attributes, const Shape& result);

}  // namespace tensor::cpu

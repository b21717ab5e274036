// What multiplies, and the right factor of a product as it takes it: strips of 16 columns.
#pragma once

#include <optional>

#include "src/core/rounding.h"
#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {

inline constexpr std::int64_t kStrip = 16;  // columns

/// What multiplies.
struct Unit {
  simd::Table::Multiply multiply;
  DType taken;             // the numbers that it takes
  std::int64_t step;       // of the depth, in numbers, whole ones of which it takes
  std::int64_t most_rows;  // of sums at a time
  bool is_tiles;           // which prefetch the weights that come next
};

/// nullopt where this machine has no tile instructions for these numbers.
std::optional<Unit> tiles_for(DType dtype, const Machine& machine);
/// Vector instructions: in float32, or in bf16 where the machine has them.
Unit vectors_for(DType dtype, const Machine& machine);

/// The right factor: a row of `depth` numbers for every column, in the order of ProductRows.
class Strips {
 public:
  Strips(const Layout& right, bool is_convolution, std::int64_t depth, const Unit& unit,
         const Numbers& numbers);

  std::int64_t columns() const { return columns_; }
  std::int64_t depth() const { return pitch_; }  // in whole steps
  std::int64_t depth_words() const { return pitch_ * numbers_.taken_bytes() / 4; }
  std::int64_t count() const { return ceil_div(columns_, kStrip); }
  std::int64_t words() const { return depth_words() * kStrip; }  // of a strip
  /// Bytes that packing takes: rows as they are multiplied and, behind them, as they are stored.
  std::int64_t room() const {
    return words() * 4 + (numbers_.are_same() ? 0 : pitch_ * kStrip * numbers_.stored_bytes());
  }

  /// One strip, through `room`.
  void pack(const std::byte* from, std::int64_t strip, float* to, std::byte* room) const;

 private:
  Numbers numbers_;
  std::int64_t depth_, pitch_, columns_ = 0, column_ = 0;
  Shape shape_;  // of the weights of one column
  Strides strides_;
};

}  // namespace tensor::cpu

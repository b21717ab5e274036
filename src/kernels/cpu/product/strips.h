// What multiplies, and the right factor of a product as it takes it: strips of 16 columns.
#pragma once

#include <optional>

#include "src/core/rounding.h"
#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/cpu/kernel.h"
#include "src/kernels/cpu/product/rows.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {

inline constexpr std::int64_t kStrip = 16;  // columns

/// What multiplies.
struct Unit {
  simd::Table::Multiply multiply;
  DType taken;             // the numbers that it takes
  std::int64_t step;       // of k, in numbers, whole ones of which it takes
  std::int64_t most_rows;  // of sums at a time; 0: any number
  bool is_tiles;           // which prefetch the weights that come next, and do nothing with sums
};

/// nullopt where this machine has no tile instructions for these numbers.
std::optional<Unit> tiles_for(DType dtype, const Machine& machine);
/// Vector instructions: in float32, or in bf16 where the machine has them.
Unit vectors_for(DType dtype, const Machine& machine);

/// Products that a kernel makes, one after the other. A convolution in groups is one for each of
/// them, or for each bundle of as many groups as have their columns in the vectors that one takes:
/// with zeros for the channels of the others. A product of two batches is one for each place in the
/// result's batch.
struct Bundles {
  std::int64_t count = 1, groups = 1;  // groups in each
  bool are_batches = false;            // each has rows of its own, not columns
};
Bundles bundles_of(const Node& node, const Shape& right, const Unit& unit);

/// The right factor: a row of `k` numbers for every column, in the order of ProductRows. No
/// strip has columns of two bundles. A strip of few columns has them one after the other.
class Strips {
 public:
  /// `run` is as much of k as lies in one piece.
  Strips(const Layout& right, const Node& node, WindowOrder order, std::int64_t k, std::int64_t run,
         const Unit& unit, const Numbers& numbers);

  const Bundles& bundles() const { return bundles_; }
  std::int64_t k() const { return pitch_; }  // in whole steps
  std::int64_t k_words() const { return pitch_ * numbers_.taken_bytes() / 4; }
  std::int64_t columns() const {  // of a bundle
    return bundles_.are_batches ? columns_ : columns_ / bundles_.count;
  }
  std::int64_t in_bundle() const { return ceil_div(columns(), kStrip); }  // strips
  std::int64_t count() const { return in_bundle() * bundles_.count; }     // strips of all
  bool are_few() const { return are_few_; }
  std::int64_t step() const { return are_few_ ? 1 : kStrip; }  // words, to the next of k
  std::int64_t words() const {                                 // of a strip
    return k_words() * (are_few_ ? columns() : kStrip);
  }
  /// The first column of a strip.
  std::int64_t column(std::int64_t strip) const {
    const std::int64_t bundle = bundles_.are_batches ? 0 : strip / in_bundle();
    return bundle * columns() + strip % in_bundle() * kStrip;
  }
  /// Bytes that packing takes: rows as they are multiplied and, behind them, as they are stored.
  std::int64_t room() const {
    return words() * 4 + (numbers_.are_same() ? 0 : pitch_ * kStrip * numbers_.stored_bytes());
  }

  /// One strip, through `room`.
  void pack(const std::byte* from, std::int64_t strip, float* to, std::byte* room) const;
  /// What is packed how.
  std::string text() const;

 private:
  Numbers numbers_;
  Bundles bundles_;
  std::int64_t k_, pitch_, columns_ = 0, column_ = 0;
  bool are_few_ = false;
  Shape shape_;  // of the weights of one column
  Strides strides_, target_;
  std::int64_t next_group_ = 0;  // in a row
  Access batches_;
  std::string text_;
};

}  // namespace tensor::cpu

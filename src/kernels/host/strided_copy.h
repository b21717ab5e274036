// StridedCopy: the elements of a shape from one memory layout to another, as fast as the two allow.
#pragma once

#include <array>
#include <cstddef>

#include "tensor/shape.h"

namespace tensor::cpu {

/// A plan without heap memory, cheap to make where it is used once. Neighbouring axes that both
/// sides walk as one are merged; stretches that lie in a row on both sides are copied whole; where
/// the sides have different innermost axes, blocks are transposed in the cache.
class StridedCopy {
 public:
  StridedCopy() = default;
  /// Strides in elements; `from` may broadcast (0) and go backwards, `to` reaches every element
  /// once.
  StridedCopy(const Shape& shape, const Strides& from, const Strides& to, std::int64_t item_size);

  /// The addresses are those of the first elements. Small copies stay in the caller's thread.
  void run(const std::byte* from, std::byte* to, int threads) const;

 private:
  struct Axis {
    std::int64_t extent, from, to;  // strides in bytes
  };
  enum class Kind : std::uint8_t { stretch, line, transpose };

  void choose_blocks();
  template <std::size_t size>
  void run_blocks(const std::byte* from, std::byte* to, std::int64_t begin, std::int64_t end) const;
  template <std::size_t size>
  void run_block(const std::byte* from, std::byte* to, std::int64_t columns,
                 std::int64_t rows) const;

  Kind kind_ = Kind::line;
  std::array<Axis, kMaxRank> outer_{};  // outermost first
  int outer_rank_ = 0;
  Axis row_{1, 0, 0};     // transpose: the innermost axis of `to`
  Axis column_{1, 0, 0};  // the innermost axis of `from`; but for transpose, of both
  std::int64_t item_size_ = 1;
  std::int64_t block_rows_ = 1, block_columns_ = 1;
  std::int64_t across_ = 0, down_ = 1;  // blocks along the columns and the rows
  std::int64_t blocks_ = 0;             // of everything
};

}  // namespace tensor::cpu

#include "src/kernels/host/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {
namespace {

constexpr std::int64_t kStretchBytes = 1 << 15;         // of a stretch or line
constexpr std::int64_t kMostRows = 128, kColumns = 16;  // of a block that is transposed
constexpr std::int64_t kFewRows = 8;              // are written apart rather than collected first
constexpr std::int64_t kLeastParallel = 1 << 17;  // bytes; less is faster in one thread

template <std::size_t size>
void move_line(const std::byte* from, std::int64_t from_step, std::byte* to, std::int64_t to_step,
               std::int64_t count) {
  for (; count > 0; --count, from += from_step, to += to_step) std::memcpy(to, from, size);
}

// to[column, row] = from[row, column], by way of the cache: so every line of either side is touched
// once, whatever the distances.
template <std::size_t size>
void transpose(const std::byte* from, std::int64_t from_row, std::byte* to, std::int64_t to_column,
               std::int64_t columns, std::int64_t rows) {
  constexpr auto kStep = static_cast<std::int64_t>(size);
  alignas(float) std::byte block[kColumns * kMostRows * size];
  const bool are_words = size == sizeof(float) && from_row % kStep == 0;
  if (are_words)
    simd::table().turn(reinterpret_cast<float*>(block), kMostRows,
                       reinterpret_cast<const float*>(from), from_row / kStep, rows, columns);
  for (std::int64_t row = 0; row < rows && !are_words; ++row)
    move_line<size>(from + row * from_row, kStep, block + row * kStep, kMostRows * kStep, columns);
  for (std::int64_t column = 0; column < columns; ++column)
    std::memcpy(to + column * to_column, block + column * kMostRows * kStep,
                static_cast<std::size_t>(rows) * size);
}

}  // namespace

StridedCopy::StridedCopy(const Shape& shape, const Strides& from, const Strides& to,
                         std::int64_t item_size)
    : item_size_(item_size) {
  Dims order;  // of `to`, outermost first
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 0) return;
    if (shape[axis] != 1) order.push_back(axis);
  }
  // By hand: std::stable_sort would take heap memory.
  const auto reach = [&](std::int64_t axis) { return std::abs(to[static_cast<int>(axis)]); };
  for (int i = 1; i < order.rank(); ++i)
    for (int k = i; k > 0 && reach(order[k - 1]) < reach(order[k]); --k)
      std::swap(order[k - 1], order[k]);
  column_ = {1, item_size, item_size};
  for (const std::int64_t i : order) {
    const int axis = static_cast<int>(i);
    const Axis next{shape[axis], from[axis] * item_size, to[axis] * item_size};
    if (column_.extent == 1) {
      column_ = next;
    } else if (column_.from == next.from * next.extent && column_.to == next.to * next.extent) {
      column_ = {column_.extent * next.extent, next.from, next.to};
    } else {
      outer_[static_cast<std::size_t>(outer_rank_++)] = column_;
      column_ = next;
    }
  }
  choose_blocks();
}

void StridedCopy::choose_blocks() {
  block_columns_ = std::max<std::int64_t>(kStretchBytes / item_size_, 1);
  if (column_.from == item_size_ && column_.to == item_size_) {
    kind_ = Kind::stretch;
  } else if (column_.to == item_size_ && column_.from != 0) {
    Axis* const end = outer_.data() + outer_rank_;
    Axis* const other =
        std::find_if(outer_.data(), end, [&](const Axis& a) { return a.from == item_size_; });
    if (other != end) {
      kind_ = Kind::transpose;
      row_ = column_;
      column_ = *other;
      std::copy(other + 1, end, other);
      --outer_rank_;
      block_rows_ = kMostRows;
      if (row_.extent > kFewRows)
        block_columns_ = ceil_div(column_.extent, ceil_div(column_.extent, kColumns));
    }
  }
  across_ = ceil_div(column_.extent, block_columns_);
  down_ = ceil_div(row_.extent, block_rows_);
  blocks_ = across_ * down_;
  for (int i = 0; i < outer_rank_; ++i) blocks_ *= outer_[static_cast<std::size_t>(i)].extent;
}

template <std::size_t size>
void StridedCopy::run_block(const std::byte* from, std::byte* to, std::int64_t columns,
                            std::int64_t rows) const {
  constexpr auto kStep = static_cast<std::int64_t>(size);
  switch (kind_) {
    case Kind::stretch:
      std::memcpy(to, from, static_cast<std::size_t>(columns) * size);
      return;
    case Kind::line:
      if (column_.from == 0 && column_.to == kStep)
        move_line<size>(from, 0, to, kStep, columns);
      else
        move_line<size>(from, column_.from, to, column_.to, columns);
      return;
    case Kind::transpose:
      if (row_.extent > kFewRows)
        transpose<size>(from, row_.from, to, column_.to, columns, rows);
      else
        for (std::int64_t row = 0; row < rows; ++row)
          move_line<size>(from + row * row_.from, kStep, to + row * kStep, column_.to, columns);
      return;
  }
}

template <std::size_t size>
void StridedCopy::run_blocks(const std::byte* from, std::byte* to, std::int64_t begin,
                             std::int64_t end) const {
  std::int64_t across = begin % across_, down = begin / across_ % down_;
  std::array<std::int64_t, kMaxRank> index{};
  std::int64_t rest = begin / across_ / down_;
  for (int axis = outer_rank_; axis-- > 0;) {
    const auto i = static_cast<std::size_t>(axis);
    index[i] = rest % outer_[i].extent;
    rest /= outer_[i].extent;
    from += index[i] * outer_[i].from;
    to += index[i] * outer_[i].to;
  }
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t column = across * block_columns_, row = down * block_rows_;
    run_block<size>(from + column * column_.from + row * row_.from,
                    to + column * column_.to + row * row_.to,
                    std::min(block_columns_, column_.extent - column),
                    std::min(block_rows_, row_.extent - row));
    if (++across < across_) continue;
    across = 0;
    if (++down < down_) continue;
    down = 0;
    for (int axis = outer_rank_; axis-- > 0;) {
      const auto i = static_cast<std::size_t>(axis);
      from += outer_[i].from;
      to += outer_[i].to;
      if (++index[i] < outer_[i].extent) break;
      from -= outer_[i].from * outer_[i].extent;
      to -= outer_[i].to * outer_[i].extent;
      index[i] = 0;
    }
  }
}

void StridedCopy::run(const std::byte* from, std::byte* to, int threads) const {
  if (blocks_ == 0) return;
  const auto run_some = [&](std::int64_t begin, std::int64_t end) {
    switch (item_size_) {
      case 1:
        return run_blocks<1>(from, to, begin, end);
      case 2:
        return run_blocks<2>(from, to, begin, end);
      case 4:
        return run_blocks<4>(from, to, begin, end);
      default:
        return run_blocks<8>(from, to, begin, end);
    }
  };
  const std::int64_t bytes = blocks_ * std::min(block_columns_, column_.extent) *
                             std::min(block_rows_, row_.extent) * item_size_;
  if (threads < 2 || bytes < kLeastParallel) return run_some(0, blocks_);
  parallel_for(threads, threads, [&](std::int64_t part, int) {
    run_some(blocks_ * part / threads, blocks_ * (part + 1) / threads);
  });
}

}  // namespace tensor::cpu

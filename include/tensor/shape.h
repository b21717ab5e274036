// Dims: a short list of 64-bit numbers without heap memory, used for shapes, strides and axes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string_view>

#include "tensor/export.h"

namespace tensor {

/// The highest rank of a tensor.
inline constexpr int kMaxRank = 16;

/// Up to kMaxRank numbers by value; a longer list throws UserError.
class TENSOR_API Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span(values.begin(), values.size())) {}
  explicit Dims(std::span<const std::int64_t> values);
  /// `count` times `value`.
  static Dims filled(int count, std::int64_t value);

  // Positions are not checked.
  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return (*this)[rank_ - 1]; }

  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + rank_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + rank_; }
  operator std::span<const std::int64_t>() const { return {begin(), end()}; }

  void push_back(std::int64_t value) { insert(rank_, value); }
  void insert(int position, std::int64_t value);
  void erase(int position);
  bool contains(std::int64_t value) const;

  friend TENSOR_API bool operator==(const Dims& a, const Dims& b);

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  int rank_ = 0;
};

using Shape = Dims;
using Strides = Dims;  // in elements, not bytes

/// Prints "(2, 3)", "(4,)", "()": NumPy's tuples.
TENSOR_API std::ostream& operator<<(std::ostream& out, const Dims& dims);

/// The product of the extents, 1 for rank 0. Throws UserError on a negative extent or 64-bit
/// overflow.
TENSOR_API std::int64_t num_elements(const Shape& shape);

/// Strides of a row-major (C-ordered) tensor.
TENSOR_API Strides row_major(const Shape& shape);

/// NumPy's broadcasting of two shapes. Throws UserError naming `where` when they do not fit.
TENSOR_API Shape broadcast_shapes(const Shape& a, const Shape& b,
                                  std::string_view where = "broadcast");

/// `axis` in [0, rank), counting from the end when negative. Throws UserError naming `where`.
TENSOR_API int normalize_axis(std::int64_t axis, int rank, std::string_view where);

}  // namespace tensor

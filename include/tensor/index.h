// Indexing: what may stand between the parentheses of x(...), and assignment to the result.
#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <optional>
#include <variant>
#include <vector>

#include "tensor/handle.h"

namespace tensor {

/// NumPy's start:stop:step. Bounds out of range are clamped; a step of 0 throws UserError when it
/// is used.
struct Slice {
  std::optional<std::int64_t> start, stop;
  std::int64_t step = 1;
};

namespace detail {
inline std::optional<std::int64_t> bound(None) { return std::nullopt; }
inline std::optional<std::int64_t> bound(std::int64_t value) { return value; }
}  // namespace detail

/// slice(2, 5) is 2:5, slice(none, -1) is :-1, slice(none, none, -1) is ::-1.
template <class A, class B>
Slice slice(A start, B stop, std::int64_t step = 1) {
  return {detail::bound(start), detail::bound(stop), step};
}

/// NumPy's ":".
inline constexpr Slice all_of_axis{};

/// NumPy's newaxis (None) and Ellipsis (...).
struct NewAxis {};
struct Ellipsis {};
inline constexpr NewAxis newaxis;
inline constexpr Ellipsis ellipsis;

/// One item of an index.
class Index {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) Index(T position)
      : value_(static_cast<std::int64_t>(position)) {}
  Index(Slice slice) : value_(slice) {}
  Index(NewAxis) : value_(NewAxis{}) {}
  Index(Ellipsis) : value_(Ellipsis{}) {}
  /// A boolean mask (as many axes as its rank) or integer positions along one axis.
  Index(Tensor positions) : value_(std::move(positions)) {}

  using Variant = std::variant<std::int64_t, Slice, NewAxis, Ellipsis, Tensor>;
  const Variant& get() const { return value_; }

 private:
  Variant value_;
};

/// Parses NumPy's index text ("1:3, ..., None, ::-1"). Throws UserError that quotes the text.
TENSOR_API std::vector<Index> parse_index(std::string_view text);

/// x[indices] as NumPy reads it; throws UserError when an integer is out of bounds, a mask does not
/// fit x's shape, or there are too many items.
TENSOR_API Tensor get_index(const Tensor& x, const std::vector<Index>& indices);

/// x[indices] = value, with value broadcast and converted to x's type. Throws UserError when x is
/// read-only or traced, and on a C++ integer that does not fit x's type.
TENSOR_API void set_index(const Tensor& x, const std::vector<Index>& indices, const Tensor& value);

/// The result of x(...): a Tensor, and a place to write to. `=` sets elements; `+=` and its
/// relatives compute with them and write the result back. Values are broadcast and converted to the
/// elements' type. UserError as in set_index, and from `+=` where the elements' type is of a lower
/// kind than the result, as with integers += 0.5.
///
/// The expression itself writes into x, whatever the index: x(0) = y, x(mask) += 1. A result with a
/// name, as `row` after `auto row = x(0)`, writes into its own elements, as in NumPy: they are x's
/// where it is a view, and those of a copy where x was indexed by a mask or an integer tensor. A
/// handle declared as Tensor, as `Tensor row = x(0)`, is rebound by assignment as every other.
class TENSOR_API IndexedTensor : public Tensor {
 public:
  IndexedTensor(Tensor base, std::vector<Index> indices)
      : Tensor(get_index(base, indices)), base_(std::move(base)), indices_(std::move(indices)) {}
  IndexedTensor(const IndexedTensor&) = default;
  IndexedTensor(IndexedTensor&&) noexcept = default;
  ~IndexedTensor() = default;

  void operator=(const IndexedTensor& value) &&;
  void operator=(const Tensor& value) &&;
  void operator+=(const Tensor& value) &&;
  void operator-=(const Tensor& value) &&;
  void operator*=(const Tensor& value) &&;
  void operator/=(const Tensor& value) &&;

  void operator=(const IndexedTensor& value) &;
  void operator=(const Tensor& value) &;
  void operator+=(const Tensor& value) &;
  void operator-=(const Tensor& value) &;
  void operator*=(const Tensor& value) &;
  void operator/=(const Tensor& value) &;

 private:
  Tensor base_;
  std::vector<Index> indices_;
};

/// Walks along the first axis of a tensor: x(0), x(1), ...
class TENSOR_API RowIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Tensor;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = IndexedTensor;

  RowIterator() = default;
  RowIterator(Tensor tensor, std::int64_t row) : tensor_(std::move(tensor)), row_(row) {}
  IndexedTensor operator*() const;
  RowIterator& operator++() {
    ++row_;
    return *this;
  }
  RowIterator operator++(int) {
    RowIterator before = *this;
    ++row_;
    return before;
  }
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.row_ == b.row_; }

 private:
  Tensor tensor_;
  std::int64_t row_ = 0;
};

template <class... I>
IndexedTensor Tensor::operator()(const I&... indices) const {
  std::vector<Index> items;
  items.reserve(sizeof...(I));
  (items.emplace_back(indices), ...);
  return IndexedTensor(*this, std::move(items));
}

template <std::integral I>
requires(!std::same_as<I, bool>) IndexedTensor Tensor::operator[](I index) const {
  return (*this)(index);
}

}  // namespace tensor

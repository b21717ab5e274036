// Indexing: what may stand between the parentheses of x(...), and assignment to the result.
#pragma once

#include <concepts>
#include <optional>
#include <variant>
#include <vector>

#include "tensor/handle.h"

namespace tensor {

/// NumPy's None as a bound of a slice: "from the beginning" or "to the end".
struct None {};
inline constexpr None none;

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
/// read-only, and on a C++ integer that does not fit x's type.
TENSOR_API void set_index(const Tensor& x, const std::vector<Index>& indices, const Tensor& value);

/// The result of x(...): a Tensor, and while it is a temporary also a place to assign to.
class TENSOR_API IndexedTensor : public Tensor {
 public:
  IndexedTensor(Tensor base, std::vector<Index> indices)
      : Tensor(get_index(base, indices)), base_(std::move(base)), indices_(std::move(indices)) {}

  void operator=(const Tensor& value) && { set_index(base_, indices_, value); }
  void operator=(const IndexedTensor& value) && { set_index(base_, indices_, value); }
  /// UserError where x's type is not of the result's kind, as with integers += 0.5.
  void operator+=(const Tensor& value) &&;
  void operator-=(const Tensor& value) &&;
  void operator*=(const Tensor& value) &&;
  void operator/=(const Tensor& value) &&;

 private:
  Tensor base_;
  std::vector<Index> indices_;
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

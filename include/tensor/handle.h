// Tensor: a handle on shared, strided storage. Copying a Tensor copies the handle; a view shares
// the storage.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tensor/axes.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/export.h"
#include "tensor/shape.h"

namespace tensor {

class Index;
class IndexedTensor;
class RowIterator;
template <class T>
class Elements;

namespace detail {
struct TensorImpl;
}

/// What an operator sees of a tensor before there are any values: shape and element type.
struct TensorType {
  Shape shape;
  DType dtype = f32;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
/// Prints "f32(2, 3)".
TENSOR_API std::ostream& operator<<(std::ostream& out, const TensorType& type);

/// A NumPy-like array of any rank up to kMaxRank.
///
/// Reading one tensor from several threads is safe; writing needs the caller's own lock. Every
/// member but `defined` throws UserError on a default-constructed Tensor.
class TENSOR_API Tensor {
 public:
  Tensor() = default;
  /// A 0-d tensor that does not promote: `x + 1.5` has the type of a floating x (NumPy's rule for
  /// Python scalars).
  template <class T>
  requires std::is_arithmetic_v<T> Tensor(T number) : Tensor(from_number(number)) {}
  explicit Tensor(std::shared_ptr<detail::TensorImpl> impl) : impl_(std::move(impl)) {}

  // Assignment rebinds the handle; `x(slice(0, 2)) = y` (see IndexedTensor) writes elements.
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  ~Tensor() = default;

  bool defined() const { return impl_ != nullptr; }
  DType dtype() const;
  const Shape& shape() const;
  std::int64_t shape(int axis) const;  ///< extent of an axis, from the end when negative
  const Strides& strides() const;      ///< in elements
  TensorType type() const { return {shape(), dtype()}; }
  int rank() const { return shape().rank(); }
  std::int64_t size() const;    ///< number of elements
  std::int64_t nbytes() const;  ///< size() * item_size(dtype())
  bool is_contiguous() const;   ///< row-major without gaps
  bool is_weak() const;         ///< made from a C++ number
  bool is_read_only() const;    ///< memory that must not be written (a mapped file, a broadcast)
  bool shares_storage(const Tensor& other) const;

  /// Where the elements lie. A traced tensor says the CPU: its function runs wherever it is
  /// compiled for.
  Device device() const;
  /// The same elements on `device`: x.to("cuda"), and x.to("cpu") to bring them back. A contiguous
  /// copy, or this tensor where it is there already or is traced. UserError where there is no such
  /// device or not enough memory.
  Tensor to(const Device& device) const;
  /// The same elements as `dtype`: this tensor where they are, else astype(dtype).
  template <std::same_as<DType> D>  // so that x.to({}) means a device
  Tensor to(D dtype) const {
    return dtype == this->dtype() && !is_weak() ? *this : astype(dtype);
  }
  Tensor to(const Device& device, DType dtype) const { return to(device).to(dtype); }

  /// The first element; `T` must be the element type exactly, and the elements in this process's
  /// memory (UserError otherwise: bring them there with to("cpu")).
  template <class T>
  const T* data() const {
    return static_cast<const T*>(raw_data(dtype_of<T>(), "data"));
  }
  /// As `data`, for writing. UserError when the memory is read-only.
  template <class T>
  T* mutable_data() {
    return static_cast<T*>(raw_mutable_data(dtype_of<T>()));
  }
  /// All elements in a row. UserError unless contiguous and of type T.
  template <class T>
  std::span<const T> span() const {
    require_values("span");
    require_contiguous();
    return {data<T>(), static_cast<std::size_t>(size())};
  }
  template <class T>
  std::span<T> mutable_span() {
    require_values("mutable_span");
    require_contiguous();
    return {mutable_data<T>(), static_cast<std::size_t>(size())};
  }
  /// A range over the elements in row-major order, whatever the strides. Errors as in `data`.
  template <class T>
  Elements<T> elements() const;
  /// The elements in row-major order, converted to T as `astype` does; from any device.
  template <class T>
  std::vector<T> to_vector() const;

  /// One element by its indices, converted to T as `astype` does; from any device. With no index:
  /// the only element of a tensor of size 1. Negative indices count from the end; UserError out of
  /// bounds.
  template <class T = double, std::integral... I>
  T item(I... indices) const {
    const std::int64_t where[] = {static_cast<std::int64_t>(indices)..., 0};
    alignas(8) std::byte copy[8];
    const void* element = raw_element({where, sizeof...(I)}, copy);
    if constexpr (std::is_same_v<T, bool>)
      return number_at(element) != 0;
    else
      return is_floating(dtype()) ? detail::saturated<T>(number_at(element))
                                  : static_cast<T>(integer_at(element));
  }
  /// The only element, as item() gives it: static_cast<float>(x(0, 1)), `if (all(a == b))`.
  /// UserError on any other size, where a condition would be ambiguous, and on a traced tensor,
  /// whose value cannot decide what is traced: use where() or cond().
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit operator T() const {
    if constexpr (std::is_same_v<T, bool>) return truth();
    require_values("static_cast");
    return item<T>();
  }
  /// A reference to one element in this process's memory; `T` must be the element type exactly.
  /// Indices as in `item`. UserError for writing when the memory is read-only.
  template <class T, std::integral... I>
  const T& at(I... indices) const {
    require_dtype(dtype_of<T>());
    const std::int64_t where[] = {static_cast<std::int64_t>(indices)..., 0};
    return *static_cast<const T*>(raw_element({where, sizeof...(I)}, nullptr));
  }
  template <class T, std::integral... I>
  T& at(I... indices) {
    expose("at");
    return const_cast<T&>(std::as_const(*this).template at<T>(indices...));
  }

  /// NumPy indexing: integers, slice(a, b, step), all_of_axis, newaxis, ellipsis give a view; a
  /// boolean mask or an integer tensor gives a copy. Assigning to the result writes into this
  /// tensor either way (see IndexedTensor): x(x < 0) = 0. That needs no mutable x, since `const` is
  /// the handle's and not the elements'; only is_read_only() protects these.
  template <class... I>
  IndexedTensor operator()(const I&... indices) const;
  /// NumPy's index as text: x["1:3, ..., ::-1"]; x[i] is x(i).
  IndexedTensor operator[](const char* index) const;
  IndexedTensor operator[](std::nullptr_t) const = delete;
  template <std::integral I>
  requires(!std::same_as<I, bool>) IndexedTensor operator[](I index) const;

  /// Iteration over the first axis: for (const Tensor& row : x). The rows are x(0), x(1) and so on,
  /// so `for (auto row : x) row += 1` writes into x. UserError on a 0-d tensor.
  RowIterator begin() const;
  RowIterator end() const;

  // The operators that are methods in NumPy, too; tensor/ops.h has them all, and what they do.
  Tensor reshape(const Shape& shape) const;
  Tensor transpose() const;
  Tensor transpose(const Dims& axes) const;
  Tensor swapaxes(int a, int b) const;
  Tensor expand_dims(int axis) const;
  Tensor squeeze(const Axes& axis = {}) const;
  Tensor flatten() const;  ///< one axis, always a copy; reshape({-1}) is a view where it can be
  Tensor astype(DType dtype) const;
  Tensor copy() const;  ///< contiguous, own storage
  Tensor sum(const Axes& axis = {}, bool keepdims = false) const;
  Tensor mean(const Axes& axis = {}, bool keepdims = false) const;
  Tensor prod(const Axes& axis = {}, bool keepdims = false) const;
  Tensor max(const Axes& axis = {}, bool keepdims = false) const;
  Tensor min(const Axes& axis = {}, bool keepdims = false) const;
  Tensor var(const Axes& axis = {}, bool keepdims = false, double ddof = 0) const;
  Tensor std(const Axes& axis = {}, bool keepdims = false, double ddof = 0) const;
  Tensor any(const Axes& axis = {}, bool keepdims = false) const;
  Tensor all(const Axes& axis = {}, bool keepdims = false) const;
  Tensor argmax(const Axes& axis = {}, bool keepdims = false) const;
  Tensor argmin(const Axes& axis = {}, bool keepdims = false) const;
  Tensor cumsum(int axis) const;
  Tensor argsort(int axis = -1) const;
  Tensor clip(const Tensor& low, const Tensor& high) const;
  Tensor round() const;
  Tensor dot(const Tensor& other) const;
  Tensor take(const Tensor& indices, int axis) const;
  Tensor repeat(std::int64_t repeats, int axis) const;

  const std::shared_ptr<detail::TensorImpl>& impl() const { return impl_; }

 private:
  static Tensor from_number(bool value);
  static Tensor from_number(std::int64_t value);
  static Tensor from_number(double value);
  template <class T>
  static Tensor from_number(T value) {
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t))
        if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max()))
          fail("tensor", "the number ", value,
               " does not fit into i64, the widest integer type: give it as a double");
      return from_number(static_cast<std::int64_t>(value));
    } else {
      return from_number(static_cast<double>(value));
    }
  }
  const void* raw_data(DType dtype, std::string_view where) const;
  void* raw_mutable_data(DType dtype);
  // An element of a device goes to `copy`; UserError when that is null.
  const void* raw_element(std::span<const std::int64_t> indices, std::byte* copy) const;
  double number_at(const void* element) const;
  std::int64_t integer_at(const void* element) const;
  bool truth() const;
  void require_dtype(DType dtype) const;
  void require_contiguous() const;
  void require_values(std::string_view where) const;
  // Before a pointer to write through is handed out. UserError where the memory is read-only.
  void expose(std::string_view where);

  std::shared_ptr<detail::TensorImpl> impl_;
};

/// Prints as NumPy does, with the middle of large tensors left out.
TENSOR_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// The elements of a tensor in row-major order, as a forward range of references.
template <class T>
class Elements {
 public:
  class iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    iterator() = default;
    iterator(const Elements* range, std::int64_t position) : range_(range), position_(position) {
      element_ = range->first_;
    }
    reference operator*() const { return *element_; }
    pointer operator->() const { return element_; }
    iterator& operator++() {
      ++position_;
      for (int axis = range_->shape_.rank() - 1; axis >= 0; --axis) {
        element_ += range_->strides_[axis];
        if (++index_[axis] < range_->shape_[axis]) return *this;
        element_ -= range_->strides_[axis] * range_->shape_[axis];
        index_[axis] = 0;
      }
      return *this;
    }
    iterator operator++(int) {
      iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const iterator& a, const iterator& b) {
      return a.position_ == b.position_;
    }

   private:
    const Elements* range_ = nullptr;
    const T* element_ = nullptr;
    std::int64_t position_ = 0;
    Dims index_ = Dims::filled(kMaxRank, 0);
  };

  Elements(Tensor owner, const T* first)
      : owner_(std::move(owner)),
        first_(first),
        shape_(owner_.shape()),
        strides_(owner_.strides()) {}
  iterator begin() const { return iterator(this, 0); }
  iterator end() const { return iterator(this, owner_.size()); }

 private:
  Tensor owner_;
  const T* first_;
  Shape shape_;
  Strides strides_;
};

template <class T>
Elements<T> Tensor::elements() const {
  require_values("elements");
  return Elements<T>(*this, data<T>());
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  require_values("to_vector");
  const Tensor here = to(Device());
  const Tensor converted = here.dtype() == dtype_of<T>() ? here : here.astype(dtype_of<T>());
  if constexpr (!std::is_same_v<T, bool>)  // whose vector has no array
    if (converted.is_contiguous()) {
      const T* const first = converted.data<T>();
      return std::vector<T>(first, first + converted.size());
    }
  const Elements<T> range = converted.elements<T>();
  return std::vector<T>(range.begin(), range.end());
}

}  // namespace tensor

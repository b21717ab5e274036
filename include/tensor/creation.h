// Making tensors: NumPy's zeros, arange, array ..., views of foreign memory, and seeded random
// numbers.
#pragma once

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tensor/handle.h"

namespace tensor {

// On the CPU, but for `empty` on another device and the *_like functions.

/// Uninitialised elements. UserError where there is no such device or not enough memory.
TENSOR_API Tensor empty(const Shape& shape, DType dtype = f32, const Device& device = {});
TENSOR_API Tensor zeros(const Shape& shape, DType dtype = f32);
TENSOR_API Tensor ones(const Shape& shape, DType dtype = f32);
/// `value`, a C++ number or a tensor, broadcast to the shape. Without a type: that of the tensor,
/// i64 for integers, f64 for floating numbers, bool for bool. Conversion is that of astype, but
/// UserError on a C++ integer that does not fit into the integer type.
TENSOR_API Tensor full(const Shape& shape, const Tensor& value);
TENSOR_API Tensor full(const Shape& shape, const Tensor& value, DType dtype);
/// One extent is a shape, too: zeros(3) is zeros({3}).
template <std::integral I>
Tensor empty(I extent, DType dtype = f32, const Device& device = {}) {
  return empty(Shape{static_cast<std::int64_t>(extent)}, dtype, device);
}
template <std::integral I>
Tensor zeros(I extent, DType dtype = f32) {
  return zeros(Shape{static_cast<std::int64_t>(extent)}, dtype);
}
template <std::integral I>
Tensor ones(I extent, DType dtype = f32) {
  return ones(Shape{static_cast<std::int64_t>(extent)}, dtype);
}
template <std::integral I>
Tensor full(I extent, const Tensor& value) {
  return full(Shape{static_cast<std::int64_t>(extent)}, value);
}
template <std::integral I>
Tensor full(I extent, const Tensor& value, DType dtype) {
  return full(Shape{static_cast<std::int64_t>(extent)}, value, dtype);
}
/// As empty, zeros, ones and full, with the shape of x, on its device, and of its type unless
/// another is named.
TENSOR_API Tensor empty_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);
TENSOR_API Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);
TENSOR_API Tensor ones_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);
TENSOR_API Tensor full_like(const Tensor& x, const Tensor& value,
                            std::optional<DType> dtype = std::nullopt);

/// start, start + step, ... below stop (above it when step is negative). Integers alone give i64.
/// UserError on a step of 0.
TENSOR_API Tensor arange(std::int64_t start, std::int64_t stop, std::int64_t step);
template <std::integral Start, std::integral Stop, std::integral Step = std::int64_t>
Tensor arange(Start start, Stop stop, Step step = 1) {
  return arange(static_cast<std::int64_t>(start), static_cast<std::int64_t>(stop),
                static_cast<std::int64_t>(step));
}
template <std::integral Stop>
Tensor arange(Stop stop) {
  return arange(Stop{0}, stop);
}
TENSOR_API Tensor arange(double start, double stop, double step = 1, DType dtype = f32);
inline Tensor arange(double stop, DType dtype = f32) { return arange(0, stop, 1, dtype); }
/// `count` numbers from start to stop, which is left out when `endpoint` is false; rounded down in
/// integer types.
TENSOR_API Tensor linspace(double start, double stop, std::int64_t count, bool endpoint = true,
                           DType dtype = f32);
/// Ones on the diagonal `k` of a rows x columns matrix.
TENSOR_API Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k = 0,
                      DType dtype = f32);
inline Tensor eye(std::int64_t rows) { return eye(rows, rows); }

/// A copy of `values` in the given shape. Throws UserError when the sizes differ.
template <class T>
Tensor array(std::span<const T> values, const Shape& shape) {
  Tensor result = empty(shape, dtype_of<T>());
  if (static_cast<std::int64_t>(values.size()) != result.size())
    fail("array", "got ", values.size(), " values for the shape ", shape, ", need ", result.size());
  std::copy(values.begin(), values.end(), result.template mutable_data<T>());
  return result;
}
template <class T>
Tensor array(std::span<const T> values) {
  return array(values, Shape{static_cast<std::int64_t>(values.size())});
}
template <class T>
Tensor array(const std::vector<T>& values) {
  return array(std::span<const T>(values));
}
template <class T>
Tensor array(const std::vector<T>& values, const Shape& shape) {
  return array(std::span<const T>(values), shape);
}
/// array({1, 2, 3, 4}, {2, 2}): the same of values in braces.
template <class T>
requires std::is_arithmetic_v<T> Tensor array(std::initializer_list<T> values, const Shape& shape) {
  return array(std::span<const T>(values.begin(), values.size()), shape);
}
/// array({1, 2}), array({{1, 2}, {3, 4}}) and one level more. The element type is T's: i32 for int,
/// f64 for double. Throws UserError when the rows differ in length.
template <class T>
requires std::is_arithmetic_v<T> Tensor array(std::initializer_list<T> values) {
  return array(std::span<const T>(values.begin(), values.size()));
}
template <class T>
requires std::is_arithmetic_v<T> Tensor array(std::initializer_list<std::initializer_list<T>> rows);
template <class T>
requires std::is_arithmetic_v<T> Tensor
array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks);

/// A tensor over foreign memory of this process that stays alive as long as `owner`. `strides` in
/// elements, row-major when absent, one an axis (UserError). Whether the memory is large enough is
/// not checked, nor whether bools are 0 or 1, as they must be when they are read.
TENSOR_API Tensor from_memory(void* data, const Shape& shape, DType dtype,
                              std::shared_ptr<const void> owner,
                              std::optional<Strides> strides = std::nullopt);
/// The same over memory that must not be written. UserError on a bool that is neither 0 nor 1.
TENSOR_API Tensor from_memory(const void* data, const Shape& shape, DType dtype,
                              std::shared_ptr<const void> owner,
                              std::optional<Strides> strides = std::nullopt);

/// The same over memory of a GPU: `data` is an address there (CUdeviceptr, or what cudaMalloc
/// gave), aligned to the type's size. What writes it on another stream must be done when an
/// operator, a copy or Executable::run reads it (tensor/interop.h). UserError on the CPU, on a GPU
/// that is not there, and on an address that is null or not aligned.
TENSOR_API Tensor from_memory(void* data, const Shape& shape, DType dtype,
                              std::shared_ptr<const void> owner, const Device& device,
                              std::optional<Strides> strides = std::nullopt);

/// Seeded random numbers, the same on every machine (Philox 4x32-10: Salmon et al., SC 2011).
class TENSOR_API Generator {
 public:
  explicit Generator(std::uint64_t seed) : seed_(seed) {}
  /// Numbers in [low, high), also after rounding to the type.
  Tensor uniform(const Shape& shape, double low = 0, double high = 1, DType dtype = f32);
  Tensor normal(const Shape& shape, double mean = 0, double deviation = 1, DType dtype = f32);
  /// Integers in [low, high). UserError unless low < high and the type holds them all.
  Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, DType dtype = i64);

 private:
  std::uint64_t next();
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
  std::uint64_t spare_ = 0;
  bool has_spare_ = false;
};

namespace detail {
TENSOR_API Tensor stack_equal(const std::vector<Tensor>& rows);
}  // namespace detail

template <class T>
requires std::is_arithmetic_v<T> Tensor
array(std::initializer_list<std::initializer_list<T>> rows) {
  std::vector<Tensor> parts;
  for (const auto& row : rows) parts.push_back(array(row));
  return detail::stack_equal(parts);
}
template <class T>
requires std::is_arithmetic_v<T> Tensor
array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks) {
  std::vector<Tensor> parts;
  for (const auto& block : blocks) parts.push_back(array(block));
  return detail::stack_equal(parts);
}

}  // namespace tensor

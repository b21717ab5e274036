// The arithmetic of the generated tests, independent of the library: arrays of long double (which
// holds every value of every element type exactly), rounding to an element type, its bits in
// memory, and comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "tests/cases/case.h"
#include "tests/seed.h"

namespace tensor::generated {

using Exact = long double;
using Index = std::vector<std::int64_t>;

/// A row-major array.
struct Array {
  Shape shape;
  DType dtype = f32;
  std::vector<Exact> values;

  Array() = default;
  Array(const Shape& shape, DType dtype, Exact fill = 0)
      : shape(shape), dtype(dtype), values(static_cast<std::size_t>(num_elements(shape)), fill) {}
  int rank() const { return shape.rank(); }
  std::size_t size() const { return values.size(); }
  /// The element at an index; extents of 1 (and missing leading axes) are stretched as in
  /// broadcasting.
  Exact at(const Index& index) const;
};

/// The index of the flat position `flat` in row-major order.
Index unravel(std::size_t flat, const Shape& shape);
/// The flat position of an index.
std::size_t ravel(const Index& index, const Shape& shape);

/// What an operator should return: each element within ulps * (the type's unit in the last place
/// there) + slack of the value; with neither, exactly the value rounded to the type.
struct Expected : Array {
  using Array::Array;
  std::vector<Exact> slack;  // empty: none
  double ulps = 0;
  bool signed_zero = false;  // the sign of a zero matters
};

struct Precision {
  int digits;        // of the significand, with the hidden one
  int min_exponent;  // of the smallest normal number
  int max_exponent;  // of the largest number
};
Precision precision(DType floating);
/// The distance from 1 to the next number, halved: the relative error of one rounding.
Exact unit_roundoff(DType floating);
/// The distance between neighbouring numbers of the type at this value.
Exact ulp(DType floating, Exact value);
/// The nearest value of the type, ties to even; integers wrap around as two's complement does.
Exact round_to(DType dtype, Exact value);
/// The least and greatest finite value.
Exact lowest(DType dtype);
Exact highest(DType dtype);

void write_bits(std::byte* where, DType dtype, Exact value);
Exact read_bits(const std::byte* where, DType dtype);

/// The elements of a tensor, read from memory through its strides.
Array read(const Tensor& x);

using check::seed;

/// Random elements as the input asks for. The same seed gives the same values.
Array make_values(const cases::Input& input, std::mt19937_64& random);

/// An array in memory, amid bytes that nobody may change.
class Block {
 public:
  Block(const Array& array, cases::Layout layout);
  const Tensor& tensor() const { return tensor_; }
  Tensor& tensor() { return tensor_; }
  /// Every byte is as it was when the block was made.
  bool unchanged() const { return *memory_ == before_; }
  /// As `unchanged`, apart from the elements of the tensor.
  bool frame_unchanged() const;

 private:
  std::shared_ptr<std::vector<std::byte>> memory_;
  std::vector<std::byte> before_;
  Tensor tensor_;
};

/// What differs between a result and what was expected, if anything.
std::optional<std::string> difference(const Array& got, const Expected& expected);

}  // namespace tensor::generated

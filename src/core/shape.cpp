#include "tensor/shape.h"

#include <algorithm>
#include <ostream>
#include <string>

#include "tensor/error.h"

namespace tensor {

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > kMaxRank)
    fail("shape", "got ", values.size(), " axes, need at most ", kMaxRank);
  rank_ = static_cast<int>(values.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

Dims Dims::filled(int count, std::int64_t value) {
  Dims result;
  if (count > kMaxRank) fail("shape", "got ", count, " axes, need at most ", kMaxRank);
  result.rank_ = count;
  std::fill(result.begin(), result.end(), value);
  return result;
}

void Dims::insert(int position, std::int64_t value) {
  if (rank_ == kMaxRank) fail("shape", "got more than ", kMaxRank, " axes");
  ++rank_;
  std::copy_backward(begin() + position, end() - 1, end());
  (*this)[position] = value;
}

void Dims::erase(int position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --rank_;
}

bool Dims::contains(std::int64_t value) const { return std::find(begin(), end(), value) != end(); }

bool operator==(const Dims& a, const Dims& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

std::ostream& operator<<(std::ostream& out, const Dims& dims) {
  out << '(';
  for (int i = 0; i < dims.rank(); ++i) out << (i > 0 ? ", " : "") << std::to_string(dims[i]);
  return out << (dims.rank() == 1 ? ",)" : ")");
}

std::int64_t num_elements(const Shape& shape) {
  // Zero extents are applied last, so that a shape is too large or not whatever the order of its
  // axes.
  std::int64_t count = 1;
  bool zero = false;
  for (const auto extent : shape) {
    if (extent < 0) fail("shape", "got ", shape, ", need extents of at least 0");
    if (extent == 0)
      zero = true;
    else if (__builtin_mul_overflow(count, extent, &count))
      fail("shape", "the shape ", shape, " holds more than 2^63 elements");
  }
  return zero ? 0 : count;
}

Strides row_major(const Shape& shape) {
  Strides strides = Strides::filled(shape.rank(), 1);
  for (int axis = shape.rank() - 2; axis >= 0; --axis)
    strides[axis] = strides[axis + 1] * std::max<std::int64_t>(shape[axis + 1], 1);
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view where) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  const int lead = longer.rank() - shorter.rank();
  for (int axis = 0; axis < shorter.rank(); ++axis) {
    const std::int64_t extent = shorter[axis];
    std::int64_t& wide = result[axis + lead];
    if (wide == 1)
      wide = extent;
    else if (extent != 1 && extent != wide)
      fail(where, "the shapes ", a, " and ", b,
           " do not broadcast: axes must be equal or 1, counted from the last");
  }
  return result;
}

int normalize_axis(std::int64_t axis, int rank, std::string_view where) {
  if (axis < -rank || axis >= rank)
    fail(where, "got the axis ", axis, " for a tensor of rank ", rank,
         rank == 0 ? " (it has none)" : "");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace tensor

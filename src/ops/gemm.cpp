#include "src/ops/gemm.h"

#include <Eigen/Core>
#include <algorithm>
#include <vector>

#include "src/core/dispatch.h"
#include "src/core/parallel.h"
#include "src/ops/pack.h"
#include "tensor/creation.h"

namespace tensor {
namespace {

template <class V>
V transposed(const V& x) {
  return {x.data, x.dtype, {x.shape[1], x.shape[0]}, {x.strides[1], x.strides[0]}};
}

// Whether the elements of a row follow each other in memory.
bool rows_are_runs(const Shape& shape, const Strides& strides) {
  return strides[1] == 1 || shape[1] <= 1;
}

// Calls body with the matrix as an Eigen map: row-major if its rows are runs, otherwise
// column-major.
template <class T, class Body>
void with_map(const ConstView& x, Body&& body) {
  using Eigen::Dynamic;
  using Eigen::OuterStride;
  const Eigen::Index rows = x.shape[0], columns = x.shape[1];
  if (rows_are_runs(x.shape, x.strides)) {
    using Matrix = Eigen::Matrix<T, Dynamic, Dynamic, Eigen::RowMajor>;
    body(Eigen::Map<const Matrix, 0, OuterStride<>>(x.as<T>(), rows, columns,
                                                    OuterStride<>(x.strides[0])));
  } else {
    using Matrix = Eigen::Matrix<T, Dynamic, Dynamic, Eigen::ColMajor>;
    body(Eigen::Map<const Matrix, 0, OuterStride<>>(x.as<T>(), rows, columns,
                                                    OuterStride<>(x.strides[1])));
  }
}

// Rows [begin, end) of a matrix, or columns.
template <class V>
V part_of(V x, int axis, std::int64_t begin, std::int64_t end) {
  x.data += begin * x.strides[axis] * item_size(x.dtype);
  x.shape[axis] = end - begin;
  return x;
}

// Needs a and b readable in place and rows of c that are runs.
template <class T>
void multiply_alone(const ConstView& a, const ConstView& b, const View& c) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<Matrix, 0, Eigen::OuterStride<>> product(c.as<T>(), c.shape[0], c.shape[1],
                                                      Eigen::OuterStride<>(c.strides[0]));
  with_map<T>(a, [&](const auto& left) {
    with_map<T>(b, [&](const auto& right) { product.noalias() = left * right; });
  });
}

// The same. Threads share the longer side of the result.
template <class T>
void multiply(const ConstView& a, const ConstView& b, const View& c) {
  constexpr std::int64_t kLeast = 192, kWork = 1 << 21;  // of a piece: lines, products of numbers
  const int axis = c.shape[0] > c.shape[1] ? 0 : 1;
  const double of_line = static_cast<double>(c.shape[1 - axis]) * static_cast<double>(a.shape[1]);
  const auto enough = static_cast<std::int64_t>(std::min(kWork / of_line, 1e18));
  const std::int64_t piece = std::max(kLeast, enough);
  cpu::for_pieces(c.shape[axis], piece, [&](std::int64_t begin, std::int64_t end) {
    multiply_alone<T>(axis == 0 ? part_of(a, 0, begin, end) : a,
                      axis == 1 ? part_of(b, 1, begin, end) : b, part_of(c, axis, begin, end));
  });
}

// Brings every side to a layout that `multiply` takes, by a copy where a transposition does not do.
template <class T>
void multiply_floating(const ConstView& a, const ConstView& b, const View& c) {
  if (!gemm_reads_in_place(a.shape, a.strides)) {
    const Tensor copy = packed(a, a.dtype);
    return multiply_floating<T>(const_view(copy), b, c);
  }
  if (!gemm_reads_in_place(b.shape, b.strides)) {
    const Tensor copy = packed(b, b.dtype);
    return multiply_floating<T>(a, const_view(copy), c);
  }
  if (rows_are_runs(c.shape, c.strides)) return multiply<T>(a, b, c);
  if (gemm_reads_in_place(c.shape, c.strides))  // c = a · b is cᵀ = bᵀ · aᵀ
    return multiply<T>(transposed(b), transposed(a), transposed(c));
  const Tensor product = empty(c.shape, c.dtype);
  multiply<T>(a, b, mutable_view(product));
  convert_elements(const_view(product), c);
}

void multiply_half(const ConstView& a, const ConstView& b, const View& c) {
  const Tensor left = packed(a, f32), right = packed(b, f32), product = empty(c.shape, f32);
  multiply_floating<float>(const_view(left), const_view(right), mutable_view(product));
  convert_elements(const_view(product), c);
}

// Modulo 2^64, of which the narrower types keep the low bits: wraparound in any order of summation.
template <class T>
void multiply_whole(const ConstView& a, const ConstView& b, const View& c) {
  const std::int64_t rows = c.shape[0], columns = c.shape[1], depth = a.shape[1];
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    std::fill(sums.begin(), sums.end(), 0);
    const T* left = a.as<T>() + i * a.strides[0];
    for (std::int64_t k = 0; k < depth; ++k) {
      const auto factor = static_cast<std::uint64_t>(left[k * a.strides[1]]);
      const T* right = b.as<T>() + k * b.strides[0];
      for (std::int64_t j = 0; j < columns; ++j)
        sums[static_cast<std::size_t>(j)] +=
            factor * static_cast<std::uint64_t>(right[j * b.strides[1]]);
    }
    T* out = c.as<T>() + i * c.strides[0];
    for (std::int64_t j = 0; j < columns; ++j)
      out[j * c.strides[1]] = static_cast<T>(sums[static_cast<std::size_t>(j)]);
  }
}

void check(const ConstView& a, const ConstView& b, const View& c) {
  const bool fits = a.rank() == 2 && b.rank() == 2 && c.rank() == 2 && a.shape[1] == b.shape[0] &&
                    c.shape == Shape{a.shape[0], b.shape[1]} && a.dtype == b.dtype &&
                    a.dtype == c.dtype;
  if (!fits)
    internal_error("gemm", "got ", a.dtype, a.shape, " and ", b.dtype, b.shape, " for ", c.dtype,
                   c.shape);
}

}  // namespace

bool gemm_reads_in_place(const Shape& shape, const Strides& strides) {
  return rows_are_runs(shape, strides) || strides[0] == 1 || shape[0] <= 1;
}

void gemm(const ConstView& a, const ConstView& b, const View& c) {
  check(a, b, c);
  if (num_elements(c.shape) == 0) return;
  dispatch(c.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if constexpr (std::is_integral_v<T>)
      multiply_whole<T>(a, b, c);
    else if constexpr (std::is_floating_point_v<T>)
      multiply_floating<T>(a, b, c);
    else
      multiply_half(a, b, c);
  });
}

}  // namespace tensor

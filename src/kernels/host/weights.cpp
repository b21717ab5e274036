#include "src/kernels/host/weights.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/core/parallel.h"
#include "src/core/rounding.h"
#include "src/core/storage.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/host/strided_copy.h"
#include "src/ops/promote.h"

namespace tensor::cpu {
namespace {

// Axes from the largest stride to the smallest.
Dims axes_in_memory(const Tensor& x) {
  std::vector<std::int64_t> axes(static_cast<std::size_t>(x.rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::stable_sort(axes.begin(), axes.end(), [&](std::int64_t a, std::int64_t b) {
    return x.strides()[static_cast<int>(a)] > x.strides()[static_cast<int>(b)];
  });
  return Dims(axes);
}

Dims inverse(const Dims& axes) {
  Dims result = axes;
  for (int i = 0; i < axes.rank(); ++i) result[static_cast<int>(axes[i])] = i;
  return result;
}

// Whether these are the strides of a row-major tensor.
bool are_rows(const Shape& shape, const Strides& strides) {
  const Strides expected = row_major(shape);
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && strides[axis] != expected[axis]) return false;
  return true;
}

}  // namespace

Tensor converted(const Tensor& x, DType dtype, int threads) {
  const Dims axes = axes_in_memory(x);
  const Tensor rows = transpose(x, axes);
  if (x.dtype() != f32 || (dtype != f16 && dtype != bf16) || !rows.is_contiguous())
    return cast(x, dtype);
  Tensor result = empty(rows.shape(), dtype);
  const auto* from = reinterpret_cast<const float*>(detail::stored(rows).first());
  std::byte* to = detail::stored(result).first();
  const auto store =
      simd::table()
          .store[static_cast<int>(dtype == f16 ? simd::Storage::f16 : simd::Storage::bf16)];
  constexpr std::int64_t kPiece = 1 << 16;
  parallel_for(threads, ceil_div(x.size(), kPiece), [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece;
    store(to + begin * item_size(dtype), 1, from + begin, std::min(kPiece, x.size() - begin));
  });
  return transpose(result, inverse(axes));
}

Tensor spread(const Tensor& x, const Shape& shape, const Strides& strides, int threads) {
  if (x.is_contiguous() && x.size() == num_elements(shape) && are_rows(x.shape(), strides))
    return reshape(x, shape);
  Tensor result = zeros(shape, x.dtype());
  if (x.size() > 0)
    StridedCopy(x.shape(), x.strides(), strides, item_size(x.dtype()))
        .run(detail::stored(x).first(), detail::stored(result).first(), threads);
  return result;
}

}  // namespace tensor::cpu

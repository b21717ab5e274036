#include "src/kernels/cpu/product/rows.h"

#include <algorithm>
#include <cstring>

#include "src/core/view.h"
#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/host/simd/table.h"

namespace tensor::cpu {
namespace {

template <std::int64_t size>
void copy_strided(std::byte* to, const std::byte* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + size * i, from + size * stride * i, static_cast<std::size_t>(size));
}

class MatrixRows : public ProductRows {
 public:
  MatrixRows(const Layout& left, const Shape& result, const Numbers& numbers)
      : numbers_(numbers), k_(left.shape.back()) {
    Shape rows = result;
    rows.erase(rows.rank() - 1);
    Shape all = rows;
    all.push_back(k_);
    Strides strides = broadcast_strides(left.shape, left.strides, all);
    column_ = k_ == 1 ? 1 : strides.back();
    strides.erase(strides.rank() - 1);
    rows_ = Access(rows, strides);
  }

  std::int64_t k() const override { return k_; }
  void gather(const std::byte* from, const Range& rows, const Range& k, std::byte* to,
              std::int64_t pitch) const override {
    from += numbers_.stored_bytes() * k.begin * column_;
    rows_.walk(
        rows.begin, rows.size(), [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
          if (stride == 1 && column_ > 1 && numbers_.are_words()) {
            simd::table().turn(reinterpret_cast<float*>(to), pitch / 4,
                               reinterpret_cast<const float*>(from) + offset, column_, k.size(), n);
            to += n * pitch;
            return;
          }
          for (std::int64_t i = 0; i < n; ++i, to += pitch)
            numbers_.copy(to, from + numbers_.stored_bytes() * (offset + i * stride), column_,
                          k.size());
        });
  }
  std::optional<std::int64_t> row_bytes() const override {
    const auto stride = rows_.stride();
    if (column_ != 1 || !stride || !numbers_.are_same()) return std::nullopt;
    return numbers_.stored_bytes() * *stride;
  }

 private:
  Numbers numbers_;
  Access rows_;
  std::int64_t k_, column_ = 1;
};

}  // namespace

Numbers::Numbers(DType stored, DType taken)
    : stored_bytes_(item_size(stored)), taken_bytes_(item_size(taken)) {
  if (stored == taken) return;
  if (taken == f32)
    load_ = simd::table().load[static_cast<int>(stored)];
  else
    store_ = simd::table().store[static_cast<int>(taken)];
}

void Numbers::copy(std::byte* to, const std::byte* from, std::int64_t stride,
                   std::int64_t count) const {
  if (load_)
    load_(reinterpret_cast<float*>(to), from, stride, count);
  else if (store_)
    round(to, reinterpret_cast<const float*>(from), stride, count);
  else if (stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(stored_bytes_ * count));
  else if (stored_bytes_ == 1)
    copy_strided<1>(to, from, stride, count);
  else if (stored_bytes_ == 2)
    copy_strided<2>(to, from, stride, count);
  else
    copy_strided<4>(to, from, stride, count);
}

void Numbers::round(std::byte* to, const float* from, std::int64_t stride,
                    std::int64_t count) const {
  if (stride == 1) return store_(to, 1, from, count);
  for (std::int64_t i = 0; i < count; ++i) store_(to + taken_bytes_ * i, 1, from + stride * i, 1);
}

std::unique_ptr<ProductRows> matrix_rows(const Layout& left, const Shape& result,
                                         const Numbers& numbers) {
  return std::make_unique<MatrixRows>(left, result, numbers);
}

}  // namespace tensor::cpu

#include "src/kernels/cpu/product/strips.h"

#include <algorithm>
#include <cstring>

#include "src/core/view.h"
#include "src/kernels/host/strided_copy.h"

namespace tensor::cpu {

std::optional<Unit> tiles_for(DType dtype, const Machine& machine) {
  if (machine.tile_gflops <= 0 || dtype != bf16) return std::nullopt;
  return Unit{simd::table().multiply_tiles, bf16, 32, 32, true};
}
Unit vectors_for(DType dtype, const Machine& machine) {
  constexpr std::int64_t kRows = 252;  // 1 KiB of each, 256 KiB, in the second-level cache
  if (dtype == bf16 && machine.has_bf16 && simd::table().multiply_pairs)
    return {simd::table().multiply_pairs, bf16, 2, kRows, false};
  return {simd::table().multiply, f32, 1, kRows, false};
}

Strips::Strips(const Layout& right, bool is_convolution, std::int64_t depth, const Unit& unit,
               const Numbers& numbers)
    : numbers_(numbers), depth_(depth), pitch_(round_up(depth, unit.step)) {
  const int rank = right.shape.rank();
  if (is_convolution) {
    columns_ = right.shape[0], column_ = right.strides[0];
    shape_ = {1, right.shape[2], right.shape[3], right.shape[1]};
    strides_ = {0, right.strides[2], right.strides[3], right.strides[1]};
  } else {
    columns_ = right.shape.back(), column_ = right.strides.back();
    shape_ = {1, right.shape[rank - 2]};
    strides_ = {0, right.strides[rank - 2]};
  }
}

void Strips::pack(const std::byte* from, std::int64_t strip, float* to, std::byte* room) const {
  const std::int64_t first = strip * kStrip;
  Shape shape = shape_;
  Strides strides = strides_, target = row_major(shape_);
  shape[0] = std::min(kStrip, columns_ - first);
  strides[0] = column_, target[0] = pitch_;
  std::byte* stored = numbers_.are_same() ? room : room + words() * 4;
  if (depth_ < pitch_) std::memset(room, 0, static_cast<std::size_t>(this->room()));
  const std::int64_t size = numbers_.stored_bytes();
  StridedCopy(shape, strides, target, size).run(from + size * first * column_, stored, 1);
  if (stored != room) numbers_.copy(room, stored, 1, shape[0] * pitch_);
  simd::table().pack_columns(to, kStrip, reinterpret_cast<const float*>(room), depth_words(),
                             shape[0], depth_words());
}

}  // namespace tensor::cpu

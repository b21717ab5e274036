#include "src/kernels/cuda/tensor_map.h"

#include "src/core/rounding.h"
#include "tensor/error.h"

namespace tensor::cuda {
namespace {

constexpr std::int64_t kSwizzledRow = 128;

std::string strides_fault(const TensorMapOf& view) {
  for (const std::int64_t stride : view.stride_bytes)
    if (stride % 16 != 0 || stride < 0 || stride >= std::int64_t{1} << 40)
      return "a stride of " + std::to_string(stride) + " bytes: need a multiple of 16, below 2^40";
  for (const int step : view.steps)
    if (step < 1 || step > 8) return "steps of " + std::to_string(step) + ": need 1 to 8";
  return {};
}

std::string row_fault(const TensorMapOf& view, std::int64_t elements) {
  const std::int64_t bytes = elements * item_size(view.dtype);
  if (bytes % 16 != 0)
    return "box rows of " + std::to_string(bytes) + " bytes: need a multiple of 16";
  if (view.swizzled && bytes > kSwizzledRow)
    return "swizzled box rows of " + std::to_string(bytes) + " bytes: need 128 at most";
  return {};
}

std::string im2col_fault(const TensorMapOf& view) {
  const TensorMapOf::Im2col& window = *view.im2col;
  const std::size_t rank = view.extents.size();
  if (rank < 3) return "im2col of " + std::to_string(rank) + " axes: need 3 to 5";
  if (window.lower.size() != rank - 2 || window.upper.size() != rank - 2)
    return "im2col corners need a number for each of " + std::to_string(rank - 2) + " axes";
  // Signed numbers of 16, 8 or 5 bits.
  const int most = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
  for (const std::vector<int>& corner : {window.lower, window.upper})
    for (const int x : corner)
      if (x < -most || x >= most)
        return "an im2col corner of " + std::to_string(x) + ": need " + std::to_string(-most) +
               " to " + std::to_string(most - 1);
  if (window.channels < 1 || window.channels > 256 || window.pixels < 1 || window.pixels > 1024)
    return "im2col boxes of up to 256 channels and 1024 pixels";
  return row_fault(view, window.channels);
}

std::string box_fault(const TensorMapOf& view) {
  if (view.box.size() != view.extents.size()) return "the box needs a number for each axis";
  for (const int n : view.box)
    if (n < 1 || n > kMostBoxSide)
      return "a box of " + std::to_string(n) + ": need 1 to " + std::to_string(kMostBoxSide);
  return row_fault(view, view.box[0]);
}

}  // namespace

int map_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
    case DType::i8:
      return 0;  // copies do not ask for the sign
    case DType::i16:
      return 1;
    case DType::i32:
      return 3;
    case DType::i64:
      return 5;
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::bf16:
      return 9;
  }
  return -1;
}

std::string fault(const TensorMapOf& view, Address base) {
  const std::size_t rank = view.extents.size();
  if (map_type(view.dtype) < 0) return "an element type that is not copied";
  if (rank < 1 || rank > 5) return std::to_string(rank) + " axes: need 1 to 5";
  if (view.stride_bytes.size() != rank - 1) return "a stride is needed for all axes but the first";
  if (!view.steps.empty() && view.steps.size() != rank) return "a step is needed for every axis";
  for (const std::int64_t n : view.extents)
    if (n < 1 || n > std::int64_t{1} << 32)
      return "an extent of " + std::to_string(n) + ": need 1 to 2^32";
  if ((base + static_cast<Address>(view.memory.bytes)) % 16 != 0)
    return "memory that does not begin at a multiple of 16 bytes";
  if (const std::string why = strides_fault(view); !why.empty()) return why;
  return view.im2col ? im2col_fault(view) : box_fault(view);
}

std::int64_t box_bytes(const TensorMapOf& view) {
  std::int64_t elements = 1;
  if (view.im2col) {
    elements = std::int64_t{view.im2col->channels} * view.im2col->pixels;
  } else {
    for (std::size_t axis = 0; axis < view.box.size(); ++axis) {
      const int step = axis == 0 || view.steps.empty() ? 1 : view.steps[axis];
      elements *= ceil_div(view.box[axis], step);
    }
  }
  return elements * item_size(view.dtype);
}

TensorMapOf swizzled_boxes(DType dtype, std::int64_t rows, std::int64_t columns, int box_rows,
                           Pointer memory) {
  return {.memory = memory,
          .dtype = dtype,
          .extents = {columns, rows},
          .stride_bytes = {columns * item_size(dtype)},
          .box = {static_cast<int>(kSwizzledRow / item_size(dtype)), box_rows}};
}

}  // namespace tensor::cuda

// Stacks of matrices as the copy engine of Hopper takes them: rows of i8, 16-bit elements or
// floats.
#pragma once

#include <optional>
#include <string>

#include "src/core/rounding.h"
#include "src/kernels/cuda/family.h"
#include "src/kernels/cuda/generated/extents.h"

namespace tensor::cuda {

/// A stack of matrices as it lies: element [batch, row, k].
struct Factor {
  ValueId value = -1;
  std::int64_t rows = 1, k = 1;
  std::int64_t row_stride = 0, k_stride = 0;
  Shape batch = {};           // axes along which matrices differ, merged where they can be
  Strides batch_stride = {};  // of them
  Dims batch_step = {};       // how many batches each of them spans
  std::int64_t offset = 0;

  /// The factor of a value [batch axes..., rows, k], or, turned, [batch axes..., k, rows], whose
  /// batch axes may be broadcast to `batch`.
  static Factor of(const Layout& layout, ValueId value, const Shape& batch, bool is_turned = false);
  /// Dense rows, `pitch` elements long.
  static Factor dense(ValueId value, std::int64_t batches, std::int64_t rows, std::int64_t k,
                      std::int64_t pitch);
  /// Another axis of the batch, outside of those there are.
  void add_axis(std::int64_t extent, std::int64_t stride, std::int64_t step);
  /// With harmless strides along axes of extent 1, which mean nothing.
  Factor settled() const;
  /// With rows and k exchanged.
  Factor turned() const;
  /// Whether boxes can be copied: elements of a row side by side, all else in steps of 16 bytes.
  bool fits_boxes(DType dtype = f16) const;
};

/// The struct of a factor for FactorTile of templates/gemm_tile.h.
Extents factor_numbers(const Factor& factor, DType dtype, bool are_any, const std::string& type,
                       const std::string& object);

/// Elements of 16 bits in 16 bytes, the least that the copy engine moves. Floats are held to the
/// same, though half of it would do.
inline constexpr std::int64_t kChunk = 8;
/// The same of a type.
inline std::int64_t chunk_of(DType dtype) { return item_size(dtype) == 1 ? 16 : kChunk; }
inline std::int64_t in_chunks(std::int64_t elements, DType dtype = f16) {
  return round_up(elements, chunk_of(dtype));
}

/// A factor where a kernel reads or writes it.
struct Source {
  Factor factor;
  Pointer memory;
  bool is_turned = false;  // elements of a column side by side, not those of a row

  /// Boxes of 128 bytes along k (64 elements of 16 bits, 128 of i8) by `box_rows` rows; turned, of
  /// 64 rows by 64 of k.
  TensorMapOf map(DType dtype, int box_rows) const;
  /// Adds the function "Corner<3> NAME(int x, int y, int batch)": where a box lies that begins at
  /// x along k and row y.
  void add_corner(Extents& numbers, const std::string& name) const;
};

/// The factor copied to dense rows in scratch memory by a call of its own, which is added.
Source copied(const Factor& factor, const Pointer& from, std::int64_t batches, DType dtype,
              const Machine& machine, Lowered& lowered);

}  // namespace tensor::cuda

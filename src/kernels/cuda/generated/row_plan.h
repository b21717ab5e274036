// How a kernel over rows goes through memory: which axes are rows, and what a thread has of a row.
#pragma once

#include "src/kernels/cuda/generated/pack_kernel.h"
#include "src/kernels/elementwise.h"
#include "src/kernels/match/block_shape.h"

namespace tensor::cuda {

/// An operand over the rows and, if it has an element for each of them, over the columns.
struct RowPlace {
  Access rows, columns;
  /// Offsets in a kernel: all places' extents are the same.
  std::string row_offset(Extents& numbers) const {
    return offset_text(rows.extents, rows.strides, "row", numbers, "row");
  }
  std::string column_offset(Extents& numbers) const {
    return offset_text(columns.extents, columns.strides, "c", numbers, "c");
  }
  bool is_packed(int pack) const {
    return columns.is_packed(pack) &&
           std::all_of(rows.strides.begin(), rows.strides.end(),
                       [&](std::int64_t stride) { return stride % pack == 0; });
  }
  bool depends_on_row() const {
    for (int i = 0; i < rows.strides.rank(); ++i)
      if (rows.strides[i] != 0) return true;
    return false;
  }
};

/// How rows are gone through.
enum class RowWay : std::uint8_t {
  held,   // each in the registers of a team
  whole,  // a block goes through a row as often as it must, a window at a time
  split   // several blocks do: a kernel for each time
};

/// The rows of a group and the schedule of its kernels.
class RowPlan {
 public:
  /// The group's rows, if it has any.
  static std::optional<BlockShape> accept(const Graph& graph, const Group& group);
  /// Whether such rows fit into registers.
  static bool can_be_held(const BlockShape& shape);
  /// The group is one that was accepted, with these rows.
  RowPlan(BlockShape rows_of, const LaidOutGraph& laid, const Group& group, const Machine& machine,
          RowWay way_of_them = RowWay::held);

  BlockShape shape;
  RowWay way = RowWay::held;
  std::int64_t rows = 0, columns = 0;
  bool rows_are_inside = false;  // memory has neighbouring rows closer than neighbouring columns
  int pack = 1;                  // neighbouring elements of a thread
  int packs = 1;                 // of a thread, at a time
  int team = 32;                 // threads of a row, in a block
  int block = 128;               // threads
  int splits = 1;                // blocks of a row
  int slice = 0;                 // columns of each of them, the last one aside

  /// Where a value lies, seen as `as`, for the elements of rows or for the rows alone.
  RowPlace place(ValueId id, const Shape& as, BlockExtent extent) const;
  /// Whether the threads of a row have exactly its elements.
  bool is_exact() const { return std::int64_t{team} * packs * pack == columns; }
  /// Whether lanes of a row would read from far apart.
  bool is_scattered() const;
  int rows_of_block() const { return block / team; }
  std::int64_t blocks() const { return (rows + rows_of_block() - 1) / rows_of_block() * splits; }

 private:
  const Layout& layout(ValueId id) const { return laid_.layouts[at(id)]; }
  std::int64_t place_among_rows(std::int64_t axis) const;
  void order_axes();
  std::vector<RowPlace> element_places() const;
  void choose_schedule(const Machine& machine);
  void choose_pack(const std::vector<RowPlace>& places, std::int64_t most);
  void choose_windows(const Machine& machine);
  void find_rows_between(const Dims& order);

  const LaidOutGraph& laid_;
  const Graph& graph_;
  const Group& group_;
  Dims row_axes_, column_axes_;  // of the shape, as memory has them
  std::int64_t inner_columns_ = 1, rows_between_ = 1;
};

}  // namespace tensor::cuda

// Which of a group's values have an element for every position of one block shape, and which one
// for every row of it: the groups that a vector program (block_program.h) can run.
#pragma once

#include <map>
#include <optional>

#include "src/trace/group.h"

namespace tensor {

/// What a vector program makes of an operator.
struct VectorOp {
  bool is_exact;     // operands representable in the narrow type give a representable result
  bool on_integers;  // right for u8, i8, i16 and bool as well, which floats hold exactly
  // The cost of an element: passes over it, each as long as an addition, and functions by series,
  // of which those that go lane by lane count ten.
  int passes, series;
};
/// nullopt when it has no place there.
std::optional<VectorOp> vector_op(Op op);

/// Whether a value has a number for every element of the block, or one for every row.
enum class BlockExtent : std::uint8_t { element, row };

struct BlockShape {
  Shape extents;          // of all elements, axes of extent 1 left out
  Dims columns;           // the axes among them that make a row: reduced, or to be normalised
  bool has_rows = false;  // some member works on whole rows
  std::map<ValueId, BlockExtent> members;  // views among the members as well

  Shape rows() const;  // the extents that are no columns
  std::int64_t row_count() const;
  std::int64_t column_count() const;
};

/// nullopt when some operator, type, shape or view has no place in a vector program. `splits_axes`:
/// members may be reshaped inside the group, as group_norm's images are; the block's axes are then
/// those that every member's axes can be divided into.
std::optional<BlockShape> block_shape_of(const Graph& graph, const Group& group,
                                         bool splits_axes = false);

/// f32, and what vector programs widen to it: f16 and bf16.
bool is_float(DType dtype);

/// Without the axes of extent 1.
Shape squeezed(const Shape& shape);

/// The strides of an operand of this layout that is broadcast to `shape` over `extents`, of which
/// the axes of `shape` that are not of extent 1 are runs.
Strides strides_over(const Shape& extents, const Layout& layout, const Shape& shape);
/// The same over those axes themselves.
Strides squeezed_strides(const Layout& layout, const Shape& shape);

}  // namespace tensor

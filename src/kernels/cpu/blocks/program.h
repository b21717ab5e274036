// Block programs: a group of elementwise operators, and operators on whole rows, as a short vector
// program that runs block by block while the values in between stay in the first-level cache.
#pragma once

#include "src/kernels/cpu/blocks/access.h"
#include "src/kernels/cpu/kernel.h"
#include "src/kernels/host/simd/table.h"
#include "src/kernels/match/block_shape.h"

namespace tensor::cpu {

class BlockProgram {
 public:
  /// A group that block_shape_of accepts.
  BlockProgram(const LaidOutGraph& laid, const Group& group, const BlockShape& shape, int threads);

  /// The same on tiles: rows x pitch numbers that stand for `tile`, a value of the whole shape that
  /// the group reads, and become the only value it writes. One axis of that value is the columns,
  /// the others count the rows, in their order; negative: from the end.
  struct TileSize {
    std::int64_t rows, pitch;
    int column_axis = -1;
  };
  BlockProgram(const LaidOutGraph& laid, const Group& group, const BlockShape& shape, ValueId tile,
               TileSize size);

  // Rows [row, row + rows), columns [column, column + columns) of all.
  struct Block {
    std::int64_t row, rows, column, columns;
  };

  /// As Kernel::run.
  void run(std::span<std::byte* const> operands, std::byte* scratch) const;
  std::size_t scratch_bytes() const;
  /// One tile, whose rows lie `pitch` apart; columns beyond block.columns hold anything. `scratch`
  /// has tile_floats() numbers.
  void run_tile(const Block& block, std::int64_t pitch, float* tile,
                std::span<std::byte* const> operands, float* scratch) const;
  std::int64_t tile_floats() const { return buffer_floats_; }
  std::size_t instruction_count() const { return code_.size(); }

 private:
  friend class BlockProgramBuilder;

  // How a slot gets its address in a block.
  enum class Place : std::uint8_t { direct, buffer, constant, tile };
  struct SlotPlan {
    simd::Extent extent = simd::Extent::element;
    Place place = Place::buffer;
    std::size_t operand = 0;  // direct: of the kernel
    std::int64_t offset = 0;  // buffer: in the thread's scratch; constant: in constants_; floats
  };
  // An operand that is converted or gathered into its slot, or out of it.
  struct Transfer {
    std::size_t operand;
    DType dtype;
    Access access;
    std::int16_t slot;
  };
  // Where a slot's elements of a block lie among all elements of its extent.
  struct Stretch {
    std::int64_t begin, count;
  };

  Stretch stretch(simd::Extent extent, const Block& block) const;
  void run_block(const Block& block, std::span<std::byte* const> operands, float* scratch) const;

  std::int64_t rows_ = 1, columns_ = 1;              // of all
  std::int64_t block_rows_ = 1, block_columns_ = 1;  // of a block
  int threads_ = 1;
  std::vector<SlotPlan> slots_;
  std::vector<simd::Instruction> code_;
  std::vector<Transfer> loads_, stores_;
  std::vector<float> constants_;
  std::int64_t buffer_floats_ = 0;  // of one thread
};

/// The number of values that a program may hold.
inline constexpr int kMaxSlots = 96;
/// Groups of more operators are declined: each needs at most five values.
inline constexpr std::size_t kMostOperators = 16;

}  // namespace tensor::cpu

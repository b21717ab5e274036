// What becomes of sums: the elementwise operators that follow, and where they are stored.
#pragma once

#include "src/kernels/cpu/blocks/program.h"
#include "src/kernels/cpu/product/match.h"

namespace tensor::cpu {

class ProductResult {
 public:
  using Operands = std::span<std::byte* const>;

  /// `finishes`: storing adds the addend and makes results positive, which kernels else do.
  ProductResult(const LaidOutGraph& laid, const Group& group, const AnchoredProduct& product,
                bool finishes = false);

  std::int64_t rows() const { return row_count_; }
  bool has_program() const { return !product_.epilogue.nodes.empty(); }
  bool has_addend() const { return addend_.has_value(); }
  bool has_scale() const { return product_.scale >= 0 || product_.shift >= 0; }
  /// Whether it is added behind bounds and scales; else sums begin with it.
  bool adds_last() const { return product_.adds_last; }
  /// Whether sums are not the result yet when a kernel and the program are through.
  bool is_stored_last() const { return finishes_ && (has_addend() || bounds().are_any()); }
  /// What the vector kernels do last.
  const simd::Bounds& bounds() const { return product_.bounds; }
  /// Floats from one row to the next, where sums can be made where they are to be.
  std::optional<std::int64_t> row_stride() const;
  float* at(Operands operands, std::int64_t row, std::int64_t column) const;

  /// What is added: nullptr, or the first of numbers that are addend_stride() a row apart.
  const float* addend(Operands operands, std::int64_t row, std::int64_t column) const;
  std::int64_t addend_stride() const { return addend_row_; }

  /// Makes the program for blocks of at most so many rows; `column_axis` of the anchor's result.
  void plan(const LaidOutGraph& laid, std::int64_t rows, std::int64_t pitch);
  std::int64_t scratch_bytes() const { return program_ ? program_->tile_floats() * 4 : 0; }
  /// The program on sums that are `pitch` floats apart.
  void run_program(Operands operands, const BlockProgram::Block& block, std::int64_t pitch,
                   float* sums, std::byte* scratch) const;
  /// Their way to the result.
  void store(Operands operands, const BlockProgram::Block& block, std::int64_t pitch,
             float* sums) const;
  /// ", relu, 3 instructions".
  std::string description() const;

 private:
  struct Output {
    std::size_t operand;
    DType dtype;
    std::int64_t column;  // stride
    Access rows;

    // Whether finishing rows stores them.
    bool is_direct() const;
  };
  Output output_of(const LaidOutGraph& laid, const Group& group, ValueId id) const;
  void store_to(const Output& output, Operands operands, const BlockProgram::Block& block,
                simd::Finish rows, float* sums) const;

  AnchoredProduct product_;
  bool finishes_;
  int column_axis_;
  std::optional<BlockProgram> program_;
  std::vector<std::size_t> operands_;  // of the program
  std::vector<Output> outputs_;        // the result, and last its bytes
  std::optional<std::size_t> addend_;  // operand
  std::int64_t addend_row_ = 0;        // stride
  std::int64_t row_count_ = 0;
};

/// The place of a value that a group reads among its kernel's operands.
std::size_t operand_of(const Group& group, ValueId id);

}  // namespace tensor::cpu

// What the sources of one instruction set's copy give to its table.
#pragma once

#include "table.h"

namespace tensor::simd::TENSOR_SIMD_ISA {

using Run = void (*)(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                     std::int64_t columns);

/// What runs an elementwise operator: vector code, or its reference where there is none.
Run elementwise(Op op);
/// What runs an operator on whole rows, nullptr for any other.
Run rowwise(Op op);

/// As Table::turn.
void turn(float* to, std::int64_t to_row, const float* from, std::int64_t from_row,
          std::int64_t rows, std::int64_t columns);
/// The instruction, if rows are short; else they return false.
bool softmax_short(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                   std::int64_t columns);
bool sum_short(const Instruction& instruction, const Slot* slots, std::int64_t rows,
               std::int64_t columns, float divisor);
bool layer_norm_short(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                      std::int64_t columns);

void fill_conversions(Table& table);
void fill_lines(Table& table);
void fill_products(Table& table);
void fill_strips(Table& table);
void fill_turns(Table& table);
void fill_dots(Table& table);
/// Exact sums of all rows and some strips, `pitch` from row to row, become the result.
void finish_bytes(const ByteProduct& product, std::int64_t strip, std::int64_t strips,
                  const std::int32_t* sums, std::int64_t pitch);

void fill_bytes(Table& table);
void fill_tiles(Table& table);
void fill_depthwise(Table& table);
void fill_attention(Table& table);

}  // namespace tensor::simd::TENSOR_SIMD_ISA

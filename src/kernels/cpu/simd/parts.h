// What the sources of one instruction set's copy give to its table.
#pragma once

#include "table.h"

namespace tensor::simd::TENSOR_SIMD_ISA {

using Run = void (*)(const Instruction& instruction, const Slot* slots, std::int64_t rows,
                     std::int64_t columns);

/// Nullptr for the codes of the other file.
Run elementwise(Code code);
Run rowwise(Code code);

void fill_conversions(Table& table);
void fill_lines(Table& table);

// See the members of Table.
void product(const float* a, std::int64_t a_row, std::int64_t rows, const float* panels,
             std::int64_t panel_depth, std::int64_t depth, std::int64_t vectors, float* to,
             std::int64_t to_row, const float* scale);
void pack_columns(float* panel, std::int64_t width, const float* rows, std::int64_t row_stride,
                  std::int64_t count, std::int64_t depth);
void soften(float* tile, std::int64_t rows, std::int64_t columns, std::int64_t pitch, float* top,
            float* total, float* factor);

}  // namespace tensor::simd::TENSOR_SIMD_ISA

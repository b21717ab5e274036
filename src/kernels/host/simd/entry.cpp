// The table of one instruction set's copy.
#include "parts.h"

namespace tensor::simd::TENSOR_SIMD_ISA {
namespace {

struct Runs {
  Run of[static_cast<int>(Op::count_)];
  Runs() {
    for (int i = 0; i < static_cast<int>(Op::count_); ++i) {
      const Run run = rowwise(static_cast<Op>(i));
      of[i] = run ? run : elementwise(static_cast<Op>(i));
    }
  }
};

void execute(const Instruction* code, int count, const Slot* slots, std::int64_t rows,
             std::int64_t columns) {
  static const Runs runs;
  for (int i = 0; i < count; ++i)
    runs.of[static_cast<int>(code[i].op)](code[i], slots, rows, columns);
}

Table make_table() {
  Table table{};
  table.name = TENSOR_SIMD_NAME;
  table.lanes = TENSOR_SIMD_LANES;
  fill_conversions(table);
  fill_lines(table);
  table.execute = execute;
  fill_products(table);
  fill_strips(table);
  fill_turns(table);
  fill_dots(table);
  fill_bytes(table);
  fill_tiles(table);
  fill_depthwise(table);
  fill_attention(table);
  return table;
}

}  // namespace

const Table& the_table() {
  static const Table table = make_table();
  return table;
}

}  // namespace tensor::simd::TENSOR_SIMD_ISA

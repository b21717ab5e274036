// Running a block program; block_program_build.cpp makes one.
#include "src/kernels/cpu/blocks/program.h"

#include "src/core/parallel.h"
#include "src/core/rounding.h"

namespace tensor::cpu {

using simd::Extent;
using simd::Slot;

BlockProgram::Stretch BlockProgram::stretch(Extent extent, const Block& block) const {
  switch (extent) {
    case Extent::element:
      return {block.row * columns_ + block.column, block.rows * block.columns};
    case Extent::row:
      return {block.row, block.rows};
    case Extent::column:
      return {block.column, block.columns};
    case Extent::number:
      break;
  }
  return {0, 1};
}

namespace {

// Each of some numbers, `row` apart, so many times.
void repeat(DType dtype, float* to, const std::byte* from, std::int64_t rows, std::int64_t row,
            std::int64_t columns) {
  constexpr std::int64_t kAtOnce = 256;
  float numbers[kAtOnce];
  for (std::int64_t done = 0; done < rows; done += kAtOnce) {
    const std::int64_t some = std::min(kAtOnce, rows - done);
    simd::table().load[static_cast<int>(dtype)](numbers, from + done * row * item_size(dtype), row,
                                                some);
    simd::table().collect(to + done * columns, numbers, some, 1, columns, 0);
  }
}

}  // namespace

void BlockProgram::run_block(const Block& block, std::span<std::byte* const> operands,
                             float* scratch) const {
  const simd::Table& table = simd::table();
  Slot slots[kMaxSlots];
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const SlotPlan& plan = slots_[i];
    slots[i].extent = plan.extent;
    if (plan.place == Place::buffer)
      slots[i].data = scratch + plan.offset;
    else if (plan.place == Place::direct)
      slots[i].data =
          reinterpret_cast<float*>(operands[plan.operand]) + stretch(plan.extent, block).begin;
    else
      slots[i].data =
          const_cast<float*>(constants_.data()) + plan.offset + stretch(plan.extent, block).begin;
  }
  for (const Transfer& load : loads_) {
    const Slot& slot = slots[load.slot];
    const Stretch all = stretch(slot.extent, block);
    float* to = slot.data;
    const auto run = [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
      table.load[static_cast<int>(load.dtype)](
          to, operands[load.operand] + offset * item_size(load.dtype), stride, count);
      to += count;
    };
    if (load.access.has_rows() && (load.dtype == f32 || load.access.repeats()))
      load.access.walk_rows(
          all.begin, all.count, run,
          [&](std::int64_t offset, std::int64_t rows, std::int64_t row, std::int64_t columns,
              std::int64_t column) {
            const std::byte* from = operands[load.operand] + offset * item_size(load.dtype);
            if (load.dtype == f32)
              table.collect(to, reinterpret_cast<const float*>(from), rows, row, columns, column);
            else
              repeat(load.dtype, to, from, rows, row, columns);
            to += rows * columns;
          });
    else
      load.access.walk(all.begin, all.count, run);
  }
  table.execute(code_.data(), static_cast<int>(code_.size()), slots, block.rows, block.columns);
  for (const Transfer& save : stores_) {
    const Slot& slot = slots[save.slot];
    const Stretch all = stretch(slot.extent, block);
    const float* from = slot.data;
    const auto run = [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
      table.store[static_cast<int>(save.dtype)](
          operands[save.operand] + offset * item_size(save.dtype), stride, from, count);
      from += count;
    };
    if (save.dtype != f32 || !save.access.is_turned()) {
      save.access.walk(all.begin, all.count, run);
      continue;
    }
    auto* const to = reinterpret_cast<float*>(operands[save.operand]);
    save.access.walk_rows(all.begin, all.count, run,
                          [&](std::int64_t offset, std::int64_t rows, std::int64_t,
                              std::int64_t columns, std::int64_t column) {
                            table.turn(to + offset, column, from, columns, rows, columns);
                            from += rows * columns;
                          });
  }
}

void BlockProgram::run_tile(const Block& block, std::int64_t pitch, float* tile,
                            std::span<std::byte* const> operands, float* scratch) const {
  const simd::Table& table = simd::table();
  Slot slots[kMaxSlots];
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const SlotPlan& plan = slots_[i];
    slots[i].extent = plan.extent;
    if (plan.place == Place::tile)
      slots[i].data = tile;
    else if (plan.place == Place::buffer)
      slots[i].data = scratch + plan.offset;
    else if (plan.place == Place::direct)
      slots[i].data =
          reinterpret_cast<float*>(operands[plan.operand]) + stretch(plan.extent, block).begin;
    else
      slots[i].data = const_cast<float*>(constants_.data()) + plan.offset;
  }
  for (const Transfer& load : loads_) {
    const Slot& slot = slots[load.slot];
    const auto load_line = [&](float* to, std::int64_t begin, std::int64_t count) {
      load.access.walk(begin, count, [&](std::int64_t offset, std::int64_t stride, std::int64_t n) {
        table.load[static_cast<int>(load.dtype)](
            to, operands[load.operand] + offset * item_size(load.dtype), stride, n);
        to += n;
      });
    };
    if (slot.extent == Extent::element && load.dtype == f32 && load.access.is_turned() &&
        load.access.row_length() == columns_) {
      float* to = slot.data;
      load.access.walk_turned(block.row, block.rows, block.column,
                              [&](std::int64_t offset, std::int64_t rows, std::int64_t stride) {
                                const auto* from =
                                    reinterpret_cast<const float*>(operands[load.operand]);
                                table.turn(to, pitch, from + offset, stride, block.columns, rows);
                                to += rows * pitch;
                              });
    } else if (slot.extent == Extent::element) {
      for (std::int64_t r = 0; r < block.rows; ++r)
        load_line(slot.data + r * pitch, (block.row + r) * columns_ + block.column, block.columns);
    } else {
      const Stretch all = stretch(slot.extent, block);
      load_line(slot.data, all.begin, all.count);
    }
  }
  table.execute(code_.data(), static_cast<int>(code_.size()), slots, block.rows, pitch);
}

void BlockProgram::run(std::span<std::byte* const> operands, std::byte* scratch) const {
  const std::int64_t across = ceil_div(columns_, block_columns_);
  const std::int64_t down = ceil_div(rows_, block_rows_);
  parallel_for(threads_, across * down, [&](std::int64_t task, int thread) {
    const std::int64_t row = task / across * block_rows_, column = task % across * block_columns_;
    const Block block{row, std::min(block_rows_, rows_ - row), column,
                      std::min(block_columns_, columns_ - column)};
    run_block(block, operands,
              reinterpret_cast<float*>(scratch) + buffer_floats_ * std::int64_t{thread});
  });
}

std::size_t BlockProgram::scratch_bytes() const {
  return static_cast<std::size_t>(buffer_floats_) * sizeof(float) *
         static_cast<std::size_t>(threads_);
}

}  // namespace tensor::cpu

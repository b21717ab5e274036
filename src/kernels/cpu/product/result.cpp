#include "src/kernels/cpu/product/result.h"

#include <algorithm>

namespace tensor::cpu {

std::size_t operand_of(const Group& group, ValueId id) {
  return static_cast<std::size_t>(std::find(group.reads.begin(), group.reads.end(), id) -
                                  group.reads.begin());
}

ProductResult::ProductResult(const LaidOutGraph& laid, const Group& group,
                             const AnchoredProduct& product, bool finishes)
    : product_(product),
      finishes_(finishes),
      column_axis_(column_axis(laid.graph, product)),
      result_(group.reads.size()),
      dtype_(laid.graph.type(product.result).dtype) {
  Shape shape = laid.graph.type(product.result).shape;
  Strides strides = laid.layouts[tensor::at(product.result)].strides;
  column_ = strides[column_axis_];
  shape.erase(column_axis_), strides.erase(column_axis_);
  row_count_ = num_elements(shape);
  rows_ = Access(shape, strides);
  for (const ValueId id : product.epilogue.reads)
    operands_.push_back(id == product.sums ? 0 : operand_of(group, id));
  if (product.added < 0) return;
  addend_ = operand_of(group, product.added);
  strides = laid.layouts[tensor::at(product.added)].strides;
  strides.erase(column_axis_);
  addend_row_ = Access(shape, strides).stride().value();
}

std::optional<std::int64_t> ProductResult::row_stride() const {
  return dtype_ == f32 && column_ == 1 ? rows_.stride() : std::nullopt;
}

float* ProductResult::at(Operands operands, std::int64_t row, std::int64_t column) const {
  return reinterpret_cast<float*>(operands[result_]) + row * rows_.stride().value() + column;
}

const float* ProductResult::addend(Operands operands, std::int64_t row, std::int64_t column) const {
  if (!addend_) return nullptr;
  return reinterpret_cast<const float*>(operands[*addend_]) + row * addend_row_ + column;
}

void ProductResult::plan(const LaidOutGraph& laid, std::int64_t rows, std::int64_t pitch) {
  if (!has_program()) return;
  program_.emplace(laid, product_.epilogue, *block_shape_of(laid.graph, product_.epilogue),
                   product_.sums, BlockProgram::TileSize{rows, pitch, column_axis_});
}

void ProductResult::run_program(Operands operands, const BlockProgram::Block& block,
                                std::int64_t pitch, float* sums, std::byte* scratch) const {
  if (!program_) return;
  std::byte* own[kMaxSlots];
  for (std::size_t i = 0; i < operands_.size(); ++i) own[i] = operands[operands_[i]];
  program_->run_tile(block, pitch, sums, {own, operands_.size()},
                     reinterpret_cast<float*>(scratch));
}

void ProductResult::store(Operands operands, const BlockProgram::Block& block, std::int64_t pitch,
                          float* sums) const {
  const auto& finish = simd::table().finish;
  simd::Finish rows{.sums = sums, .sums_row = pitch, .columns = block.columns};
  if (is_stored_last()) {
    rows.add = addend(operands, block.row, block.column);
    rows.add_row = addend_row_;
    rows.bounds = bounds();
  }
  const auto type = static_cast<int>(dtype_);
  const bool is_direct = column_ == 1 && finish[type];
  if (!is_direct && is_stored_last()) {
    rows.rows = block.rows, rows.to = sums, rows.to_row = pitch;
    finish[static_cast<int>(f32)](rows);
  }
  const auto store = simd::table().store[type];
  const std::int64_t size = item_size(dtype_);
  std::byte* to = operands[result_] + block.column * column_ * size;
  rows_.walk(block.row, block.rows,
             [&](std::int64_t offset, std::int64_t stride, std::int64_t count) {
               rows.rows = count, rows.to = to + offset * size, rows.to_row = stride;
               if (is_direct) {
                 finish[type](rows);
                 rows.sums += count * pitch;
                 if (rows.add) rows.add += count * addend_row_;
                 return;
               }
               for (std::int64_t i = 0; i < count; ++i, sums += pitch)
                 store(to + (offset + i * stride) * size, column_, sums, block.columns);
             });
}

std::string ProductResult::description() const {
  return std::string(product_.bias >= 0 ? ", bias" : "") + (addend_ ? ", added" : "") +
         (!bounds().are_any()                                           ? ""
          : bounds().least == 0 && bounds().most == simd::Bounds().most ? ", relu"
                                                                        : ", bounds") +
         (program_ ? ", " + std::to_string(program_->instruction_count()) + " instructions" : "");
}

}  // namespace tensor::cpu
